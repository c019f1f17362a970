package exporter

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
)

// wallTime is how the texts print a moment.
const wallTime = "2006-01-02 15:04:05 MST"

// WriteIncidentsText writes a list of incidents for a person at a terminal.
func WriteIncidentsText(w io.Writer, list []incident.Summary, color bool) error {
	t := &textWriter{color: color}
	if len(list) == 0 {
		t.buf.WriteString("no incidents\n")
	} else {
		rows := [][]string{{"ID", "OPENED", "LASTED", "STATE", "REASON", "OUTCOME"}}
		for i := range list {
			s := &list[i]
			rows = append(rows, []string{
				say(s.ID), s.Opened.UTC().Format(wallTime), formatSeconds(s.Duration), say(string(s.State)), say(s.Reason) + others(s), outcome(s),
			})
		}
		t.table(rows, "llrlll")
	}
	_, err := w.Write(t.buf.Bytes())
	return err
}

// others tells how many more reasons an incident had.
func others(s *incident.Summary) string {
	n := len(s.Reasons)
	if slices.ContainsFunc(s.Reasons, func(r incident.ReasonTimes) bool { return r.ID == s.Reason }) {
		n--
	}
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" +%d", n)
}

func outcome(s *incident.Summary) string {
	out := say(string(s.Outcome))
	if s.Episodes > 1 {
		out += fmt.Sprintf(", %d times", s.Episodes)
	}
	if !s.Stored {
		out += ", not stored"
	}
	return out
}

// WriteIncidentText writes the story of one incident for a person at a terminal.
// Nothing in it can make the terminal do anything.
func WriteIncidentText(w io.Writer, one *incident.Incident, color bool) error {
	t := &textWriter{color: color}
	fmt.Fprintf(&t.buf, "%s: %s, %s\n\n", t.paint(stateColor(string(one.State)), strings.ToUpper(say(string(one.State)))), t.paint(bold, say(one.Reason)), outcome(&one.Summary))
	t.row("Incident", say(one.ID))
	t.row("Opened", one.Opened.UTC().Format(wallTime))
	if one.Closed != nil {
		t.row("Closed", one.Closed.UTC().Format(wallTime)+", after "+formatSeconds(one.Duration))
	} else {
		t.row("Lasts", "for "+formatSeconds(one.Duration)+" by "+one.Updated.UTC().Format(wallTime))
	}
	for _, g := range one.Gaps {
		t.row("Unwatched", "for "+formatSeconds(g.To.Sub(g.From).Seconds())+" from "+g.From.UTC().Format(wallTime)+": plegd was not running")
	}
	if one.KubeletMessage != "" {
		t.row("Kubelet", say(one.KubeletMessage))
	} else {
		t.row("Kubelet", "the node stayed Ready")
	}
	t.row("Runtime", say(strings.TrimSpace(one.Runtime.Name+" "+one.Runtime.Version+" at "+one.Endpoint)))
	t.row("Before", relistsBefore(one.Relists))
	t.buf.WriteByte('\n')

	rows := [][]string{{"REASON", "SEVERITY", "FROM", "TO", "STOOD", "AS PRIMARY"}}
	for _, r := range one.Reasons {
		rows = append(rows, []string{say(r.ID), say(string(r.Severity)), "+" + formatSeconds(r.First), "+" + formatSeconds(r.Last), formatSeconds(r.Active), formatSeconds(r.Primary)})
	}
	t.table(rows, "llrrrr")

	for i := range one.Timeline {
		if i > 0 && i == len(one.Timeline)/2 && one.TimelineDropped > 0 {
			fmt.Fprintf(&t.buf, "\n%s left out in the middle\n", formatCount(one.TimelineDropped, "moment is", "moments are"))
		}
		t.moment(&one.Timeline[i])
	}
	_, err := w.Write(t.buf.Bytes())
	return err
}

// relistsBefore says how the relists before an incident were.
func relistsBefore(list []incident.Relist) string {
	if len(list) == 0 {
		return "no relist had ended"
	}
	var took []time.Duration
	failed, slowest := 0, 0.0
	for _, r := range list {
		took = append(took, time.Duration(r.Seconds*float64(time.Second)))
		slowest = max(slowest, r.Seconds)
		if r.Err != nil {
			failed++
		}
	}
	slices.Sort(took)
	return fmt.Sprintf("%s, %d failed, median %s, slowest %s", formatCount(len(list), "relist", "relists"), failed,
		formatSeconds(took[len(took)/2].Seconds()), formatSeconds(slowest))
}

// moment is one entry of the timeline.
func (t *textWriter) moment(m *incident.Moment) {
	v := m.Verdict
	if v == nil {
		return
	}
	head := string(v.State)
	if v.Reason != "" {
		head += ": " + v.Reason
	}
	if v.RulesFailIn != nil && *v.RulesFailIn == 0 {
		head += ", the kubelet manages no pods"
	}
	if v.NotReadyIn != nil && v.NodeReady {
		head += ", NotReady " + phraseWindow(durationOrNil(v.NotReadyIn), durationOrNil(v.NotReadyInLatest))
	}
	fmt.Fprintf(&t.buf, "\n%s %s\n", t.paint(dim, "+"+formatSeconds(m.Offset)), t.paint(stateColor(string(v.State)), say(head)))
	for i, a := range v.Active {
		if i > 0 {
			fmt.Fprintf(&t.buf, "  also %s\n", say(a.ID))
		}
		t.evidence("  - ", a.Evidence)
	}
	if v.KubeletMessage != "" {
		t.paragraph("  kubelet: ", say(v.KubeletMessage))
	}
	if m.Facts != nil && v.State != health.StateHealthy {
		for _, line := range factLines(m.Facts, m.At) {
			t.paragraph("  ", say(line))
		}
	}
}

// factLines are what a person wants of the facts beside the evidence: the
// runtime's threads, and the pods.
func factLines(f *health.Facts, at time.Time) (out []string) {
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
	pod := func(p *health.PodInspection, took time.Duration) string {
		return fmt.Sprintf("%s/%s in %s for %s", p.Namespace, p.Name, p.Operation, formatSeconds(took.Seconds()))
	}
	for i := range f.Relist.Inspecting {
		if p := &f.Relist.Inspecting[i]; at.Sub(p.Start) >= stuckAfter {
			out = append(out, "stuck: "+pod(p, at.Sub(p.Start)))
		}
	}
	if len(f.Relist.Slowest) > 0 {
		out = append(out, "slowest: "+pod(&f.Relist.Slowest[0], f.Relist.Slowest[0].Duration))
	}
	return out
}
