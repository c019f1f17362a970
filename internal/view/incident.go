package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/incident"
)

// wallTime is the format of a moment.
const wallTime = "2006-01-02 15:04:05 MST"

// float prints a number of seconds as facts.Seconds prints a duration.
func float(seconds float64) string {
	return facts.Seconds(time.Duration(seconds * float64(time.Second)))
}

// Incidents returns a table of incidents.
func Incidents(list []incident.Summary) Section {
	out := Section{ID: "incidents", Title: "Incidents", Kind: Table}
	out.Heads = []string{"ID", "Opened", "Lasted", "State", "Reason", "Outcome"}
	for i := range list {
		s := &list[i]
		reason := Printable(s.Reason)
		if len(s.Reasons) > 1 {
			reason += fmt.Sprintf(" +%d", len(s.Reasons)-1)
		}
		out.Rows = append(out.Rows, Row{Link: PathIncidentPages + "/" + s.ID, Cells: []string{
			Printable(s.ID), s.Opened.UTC().Format(wallTime), float(s.Duration), Printable(string(s.State)), reason, outcome(s),
		}})
	}
	return out
}

func outcome(s *incident.Summary) string {
	out := Printable(string(s.Outcome))
	if !s.Stored {
		out += ", not stored"
	}
	return out
}

// Incident returns one incident in full. present is the newest snapshot, for an incident that
// is open; an empty one where that is not known.
func Incident(one *incident.Incident, present *facts.Snapshot) *Document {
	r := reason(one.Reason)
	d := &Document{
		State: facts.State(Printable(string(one.State))), Detail: outcome(&one.Summary),
		Title: Printable(one.Reason), Reason: r.ID, Meaning: r.Meaning,
		Clock: Clock{Big: float(one.Duration), Small: []string{lasted(one)}},
		Node:  Printable(present.Node), Version: Printable(present.PlegdVersion), Taken: present.At, Live: one.Closed == nil,
	}
	if d.Live && !present.At.IsZero() {
		d.Clock.Small = append(d.Clock.Small, "now: "+outlook(present))
	}
	d.Summary = terms(
		Row{Label: "Incident", Text: Printable(one.ID) + ", " + lasted(one) + ", for " + float(one.Duration)},
		Row{Label: "Node", Text: notReadyFor(one)},
		Row{Label: "Message", Text: Printable(one.KubeletMessage)},
	)
	d.Sections = []Section{{ID: "ending", Title: "What ended it", Kind: Items, Rows: ending(one), Column: 1}}
	if len(one.Timeline) == 0 {
		return d
	}
	best := one.Evidence()
	moment := " at " + best.At.UTC().Format(time.TimeOnly)
	links := chain(&best.WaitChain)
	links.Title += moment
	state := stateSection(best)
	state.Title = "State" + moment
	state.Column = 0
	d.Summary = append(terms(culpritTerm(&best.WaitChain, best.Symptom)), d.Summary...)
	steps := Section{ID: "todo", Title: "Steps that plegd named", Kind: Items, Rows: items(best.Steps), Column: 1}
	d.Sections = append(d.Sections, filled(steps, links, timeline(one), state)...)
	return d
}

func lasted(one *incident.Incident) string {
	opened := one.Opened.UTC().Format(wallTime)
	if one.Closed == nil {
		return "since " + opened
	}
	return "from " + opened + " to " + one.Closed.UTC().Format(time.TimeOnly)
}

// notReadyFor says for how long the node was NotReady by the model. While plegd starts that
// is unknown.
func notReadyFor(one *incident.Incident) string {
	total := 0.0
	pending := ""
	for i, m := range one.Timeline {
		end := one.Duration
		if i+1 < len(one.Timeline) {
			end = one.Timeline[i+1].Offset
		}
		pending = ""
		if s := m.Snapshot; !s.NodeReady && s.State != facts.StateStarting {
			total += max(0, end-m.Offset)
			if s.ReadyIn != nil {
				pending = "; Ready again with the status update after the end, " + window(s.ReadyIn, s.ReadyInLatest)
			}
		}
	}
	switch {
	case total == 0 && pending == "":
		return "it stayed Ready by the model of the kubelet"
	case one.Closed == nil:
		pending = " so far"
	}
	return "NotReady for " + float(total) + " by the model of the kubelet" + pending
}

// ending describes how an incident ended: the differences after it, and for each reason when its
// evidence was gone.
func ending(one *incident.Incident) []Row {
	switch one.Outcome {
	case incident.Open:
		return items([]string{"It has not ended."})
	case incident.Interrupted:
		return items([]string{"plegd stopped, or the node rebooted, while it was open. When it ended is unknown."})
	}
	rows := items(one.Ending)
	if len(rows) == 0 {
		rows = items([]string{"The record does not show what ended it."})
	}
	for _, r := range one.Reasons {
		if text := reasonEnding(one, r.ID); text != "" {
			rows = append(rows, Row{Label: Printable(r.ID), Text: text})
		}
	}
	return rows
}

// reasonEnding says when a reason last ended, and the observation of that moment; empty if the record
// does not show it.
func reasonEnding(one *incident.Incident, id string) string {
	active := false
	var end *incident.Moment
	for i := range one.Timeline {
		m := &one.Timeline[i]
		stillActive := m.Snapshot.ActiveReason(id) != nil
		if active && !stillActive {
			end = m
		}
		active = stillActive
	}
	if active || end == nil {
		return ""
	}
	return "until +" + float(end.Offset) + ", when " + observation(end.Snapshot)
}

// observation is what showed that a reason was over.
func observation(s *facts.Snapshot) string {
	last := s.Facts.Relist.Last
	switch {
	case s.Facts.Relist.InFlight == nil && last != nil && last.Err == nil:
		return "a relist was answered in " + facts.Seconds(last.End.Sub(last.Start))
	case s.Reason != "":
		return Printable(s.Reason) + " was named"
	}
	return "its evidence was gone"
}

// timeline is the moments of an incident at which something that it shows has changed.
func timeline(one *incident.Incident) Section {
	out := Section{ID: "moments", Title: "What happened when", Kind: Terms}
	if one.TimelineDropped > 0 {
		out.Footnote = facts.Count(one.TimelineDropped, "moment is", "moments are") + " left out of the middle."
	}
	for _, m := range one.Timeline {
		s := m.Snapshot
		primary, secondary := splitReasons(&s.Verdict)
		state := Printable(string(s.State))
		row := Row{Label: "+" + float(m.Offset), Mark: state, Text: state, Sub: printables(primary.Evidence)}
		if primary.ID != "" {
			row.Text += ": " + Printable(s.Reason)
		}
		if s.State != facts.StateHealthy {
			row.Text += "; " + pastOutlook(s)
		}
		for _, a := range secondary {
			row.Sub = append(row.Sub, strings.Join(append([]string{"also " + Printable(a.ID)}, printables(a.Evidence)...), "; "))
		}
		out.Rows = append(out.Rows, row)
	}
	out.Rows = slices.CompactFunc(out.Rows, sameMoment)
	return out
}

// sameMoment reports whether two moments differ in their time alone.
func sameMoment(a, b Row) bool { return a.Text == b.Text && slices.Equal(a.Sub, b.Sub) }
