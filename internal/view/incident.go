package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
)

// The parts of an incident in words, the same for the terminal, the page and
// markdown.

// Explaining returns the snapshot that explains an incident best: the last one with
// its reason, rather one that names a culprit. It is nil where no moment is kept.
func Explaining(one *incident.Incident) *health.Snapshot {
	var best *health.Snapshot
	score := func(s *health.Snapshot) (n int) {
		if s.State != health.StateHealthy {
			n++
		}
		if s.Reason == one.Reason {
			n += 2
			if s.Culprit != nil {
				n++
			}
		}
		return n
	}
	for i := range one.Timeline {
		if s := one.Timeline[i].Snapshot; s != nil && (best == nil || score(s) >= score(best)) {
			best = s
		}
	}
	return best
}

// end returns when an incident ended, or when plegd last looked.
func end(one *incident.Incident) time.Time { return one.At(one.Duration) }

// classNotReady is the class of the time in which the node was NotReady by the model.
const classNotReady = "NotReady"

// spans returns the verdicts of an incident, and when the node was NotReady by the
// model. While plegd starts nobody knows either.
func spans(one *incident.Incident) (verdicts, ready []span) {
	for i := range one.Timeline {
		m := &one.Timeline[i]
		if m.Snapshot == nil {
			continue
		}
		at, class := one.At(m.Offset), ""
		if !m.Snapshot.NodeReady && m.Snapshot.State != health.StateStarting {
			class = classNotReady
		}
		verdicts = append(verdicts, span{at, string(m.Snapshot.State)})
		ready = append(ready, span{at, class})
	}
	return verdicts, ready
}

// before returns the verdict that an incident began from, since when it stood.
func before(one *incident.Incident) []span {
	if len(one.Timeline) == 0 || one.Timeline[0].Snapshot == nil || one.Timeline[0].Snapshot.Previous == nil {
		return nil
	}
	v := one.Timeline[0].Snapshot.Previous
	return []span{{v.Since, string(v.State)}}
}

// Chained returns the snapshot whose chain of waiting explains an incident best: the one
// that explains it, else the last one that names a culprit; nil where none does.
func Chained(one *incident.Incident) *health.Snapshot {
	if s := Explaining(one); s != nil && s.Culprit != nil {
		return s
	}
	for _, m := range slices.Backward(one.Timeline) {
		if m.Snapshot != nil && m.Snapshot.Culprit != nil {
			return m.Snapshot
		}
	}
	return nil
}

// NotReadyFor says for how long the node was NotReady by the model.
func NotReadyFor(one *incident.Incident) string {
	_, ready := spans(one)
	var total time.Duration
	for i, s := range ready {
		to := end(one)
		if i+1 < len(ready) {
			to = ready[i+1].from
		}
		if s.class == classNotReady {
			total += to.Sub(s.from)
		}
	}
	var last *health.Snapshot
	if n := len(one.Timeline); n > 0 {
		last = one.Timeline[n-1].Snapshot
	}
	out := ""
	switch {
	case total == 0 && (last == nil || last.NodeReady || last.ReadyIn == nil):
		return "the node stayed Ready by the model of the kubelet"
	case one.Outcome == incident.Open:
		out = ", so far"
	case last != nil && !last.NodeReady && last.ReadyIn != nil:
		out = "; Ready again with the status update after the end, " + Window(last.ReadyIn, last.ReadyInLatest)
	}
	return fmt.Sprintf("NotReady for %.1f minutes (%s)%s: predicted by plegd's model of the kubelet, not read from the API", total.Minutes(), Seconds(total), out)
}

// Forecast says what the kubelet's rules and the model made of a moment; empty
// where they hold.
func Forecast(s *health.Snapshot) string {
	var parts []string
	if s.RulesFailIn != nil && *s.RulesFailIn == 0 {
		parts = append(parts, "the kubelet manages no pods")
	}
	switch {
	case s.State == health.StateStarting:
	case !s.NodeReady:
		parts = append(parts, "NotReady by the model")
	case s.NotReadyIn != nil:
		parts = append(parts, "NotReady "+Window(s.NotReadyIn, s.NotReadyInLatest))
	}
	return strings.Join(parts, ", ")
}

// Ending says how an incident ended, and what is different after it.
func Ending(one *incident.Incident) []string {
	switch one.Outcome {
	case incident.Open:
		return []string{"It has not ended."}
	case incident.Interrupted:
		return []string{"plegd stopped, or the node rebooted, while it was open. When it ended is unknown."}
	}
	if len(one.Ending) == 0 {
		return []string{"The record does not show what ended it."}
	}
	out := make([]string, len(one.Ending))
	for i, sentence := range one.Ending {
		out[i] = Say(sentence)
	}
	return out
}

// FollowUp are the commands that show more of an incident, each with what it shows.
func FollowUp(one *incident.Incident) []string {
	id, at := Say(one.ID), func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
	units := "-u kubelet -u plegd"
	if s := Explaining(one); s != nil && s.Facts.Evidence.Process != nil && s.Facts.Evidence.Process.Unit != "" {
		units = "-u " + Say(s.Facts.Evidence.Process.Unit) + " " + units
	}
	return []string{
		fmt.Sprintf("`journalctl %s --since \"%s\" --until \"%s\"`: the logs around it.", units, at(one.Opened.Add(-time.Minute)), at(end(one).Add(time.Minute))),
		"`plegd reasons " + Say(one.Reason) + "`: what the reason means and what to do.",
		"`plegd incidents " + id + " -o json > " + id + ".json`: the whole record; `plegd replay " + id + ".json` judges it again.",
	}
}

// IncidentPlot draws the relists before and in an incident, with its verdicts and
// the time in which the node was NotReady by the model beneath.
func IncidentPlot(one *incident.Incident) *Plot {
	// As much before it as it lasted, from a quarter of a minute to two minutes.
	length := end(one).Sub(one.Opened)
	from := one.Opened.Add(-min(max(length, 15*time.Second), 2*time.Minute))
	bin := max(end(one).Add(length/20).Sub(from)/HistoryBins, 100*time.Millisecond)
	r := Recent{From: from, Bin: bin, Bins: make([]RelistBin, HistoryBins)}
	for _, done := range IncidentRelists(one) {
		i := int(done.End.Sub(from) / bin)
		if i < 0 || i >= len(r.Bins) || done.End.Before(from) {
			continue
		}
		b := &r.Bins[i]
		b.Relists++
		b.Slowest = max(b.Slowest, done.End.Sub(done.Start))
		if done.Err != nil {
			b.Failed++
		}
	}
	verdicts, ready := spans(one)
	threshold := 3 * time.Minute
	if s := Explaining(one); s != nil && s.Threshold > 0 {
		threshold = s.Threshold
	}
	over := span{from: end(one)}
	rows := []row{{"Verdict", slices.Concat(before(one), verdicts, []span{over})}}
	if slices.ContainsFunc(ready, func(s span) bool { return s.class != "" }) {
		rows = append(rows, row{"Predicted", append(ready, over)})
	}
	p := draw(r, 0, threshold, rows...)
	p.Summary = "Before it: " + RelistsBefore(one.Relists) + "."
	return p
}

// IncidentRelist is a relist that an incident holds.
type IncidentRelist struct {
	health.RelistResult
	// Open is true for one that was under way at End: what became of it is not known.
	Open bool
}

// IncidentRelists returns the relists that an incident holds, those before it and
// those of its moments, in order.
func IncidentRelists(one *incident.Incident) []IncidentRelist {
	var out []IncidentRelist
	add := func(r IncidentRelist) {
		i := slices.IndexFunc(out, func(known IncidentRelist) bool { return known.Start.Sub(r.Start).Abs() < 50*time.Millisecond })
		switch {
		case i < 0:
			out = append(out, r)
		case r.End.After(out[i].End):
			out[i] = r
		}
	}
	for _, r := range one.Relists {
		add(IncidentRelist{RelistResult: r})
	}
	for i := range one.Timeline {
		s := one.Timeline[i].Snapshot
		if s == nil {
			continue
		}
		if s.Facts.Relist.Last != nil {
			add(IncidentRelist{RelistResult: *s.Facts.Relist.Last})
		}
		if f := s.Facts.Relist.InFlight; f != nil {
			add(IncidentRelist{RelistResult: health.RelistResult{Start: f.Start, End: s.At}, Open: true})
		}
	}
	slices.SortStableFunc(out, func(a, b IncidentRelist) int { return a.Start.Compare(b.Start) })
	return out
}

// RelistsBefore says how the relists before an incident went.
func RelistsBefore(list []health.RelistResult) string {
	if len(list) == 0 {
		return "no relist had ended"
	}
	var took []time.Duration
	failed := 0
	for _, r := range list {
		took = append(took, r.End.Sub(r.Start))
		if r.Err != nil {
			failed++
		}
	}
	slices.Sort(took)
	return fmt.Sprintf("%s, %d failed, median %s, slowest %s", Count(len(list), "relist", "relists"), failed,
		Seconds(took[len(took)/2]), Seconds(took[len(took)-1]))
}

// MomentFacts are the facts that a person needs besides the evidence: the runtime's
// threads, and the pods where they have names.
func MomentFacts(s *health.Snapshot) (out []string) {
	f := &s.Facts
	if p := f.Evidence.Process; p != nil {
		var states []string
		for _, state := range slices.Sorted(maps.Keys(p.Threads)) {
			if p.Threads[state] > 0 {
				states = append(states, fmt.Sprintf("%s %d", state, p.Threads[state]))
			}
		}
		line := fmt.Sprintf("process %d (%s), threads %s, %d of %d descriptors", p.PID, p.Comm, strings.Join(states, " "), p.OpenFDs, p.MaxFDs)
		if !p.Alive {
			line = fmt.Sprintf("process %d (%s) is gone", p.PID, p.Comm)
		}
		if len(p.WaitChannels) > 0 {
			line += ", waiting in " + strings.Join(p.WaitChannels, ", ")
		}
		out = append(out, line)
	}
	add := func(what string, p *health.PodInspection) {
		if p.Name != "" {
			out = append(out, fmt.Sprintf("%s: %s in %s for %s", what, PodName(p), Say(p.Operation), PodTook(s, p)))
		}
	}
	stuck := StuckPods(s)
	for i := range stuck {
		add("stuck", &stuck[i])
	}
	if len(f.Relist.Slowest) > 0 {
		add("slowest", &f.Relist.Slowest[0])
	}
	return out
}
