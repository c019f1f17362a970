package view

import (
	"fmt"
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
		reason := Say(s.Reason)
		if others := len(s.Reasons) - 1; others > 0 {
			reason += fmt.Sprintf(" +%d", others)
		}
		out.Rows = append(out.Rows, Row{Link: PathIncidentPages + "/" + s.ID, Cells: []string{
			Say(s.ID), s.Opened.UTC().Format(wallTime), float(s.Duration), Say(string(s.State)), reason, outcome(s),
		}})
	}
	return out
}

func outcome(s *incident.Summary) string {
	out := Say(string(s.Outcome))
	if !s.Stored {
		out += ", not stored"
	}
	return out
}

// Incident returns one incident in full. now is the present snapshot, for an incident that
// is open; an empty one where that is not known.
func Incident(one *incident.Incident, now *facts.Snapshot) *Document {
	r := reason(one.Reason)
	d := &Document{
		State: facts.State(Say(string(one.State))), Detail: outcome(&one.Summary),
		Title: Say(one.Reason), Reason: r.ID, Meaning: r.Meaning,
		Clock: Clock{Big: float(one.Duration), Small: []string{lasted(one)}},
		Node:  Say(now.Node), Version: Say(now.PlegdVersion), At: now.At, Live: one.Closed == nil,
	}
	if d.Live && !now.At.IsZero() {
		d.Clock.Small = append(d.Clock.Small, "now: "+outlook(now))
	}
	d.Summary = terms(
		Row{Label: "Incident", Text: Say(one.ID) + ", " + lasted(one) + ", for " + float(one.Duration)},
		Row{Label: "Node", Text: notReadyFor(one)},
		Row{Label: "Message", Text: Say(one.KubeletMessage)},
	)
	d.Sections = []Section{{ID: "ending", Title: "What ended it", Kind: Items, Rows: ending(one), Column: 1}}
	if len(one.Timeline) == 0 {
		return d
	}
	best := one.Evidence()
	at := " at " + best.At.UTC().Format(time.TimeOnly)
	links, state := chain(best), stateSection(best)
	links.Title, state.Title, state.Column = links.Title+at, state.Title+at, 0
	d.Summary = append(terms(culpritTerm(best)), d.Summary...)
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
	total, pending := 0.0, ""
	for i, m := range one.Timeline {
		to := one.Duration
		if i+1 < len(one.Timeline) {
			to = one.Timeline[i+1].Offset
		}
		pending = ""
		if s := m.Snapshot; !s.NodeReady && s.State != facts.StateStarting {
			total += max(0, to-m.Offset)
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

// ending describes how an incident ended, and the differences after it.
func ending(one *incident.Incident) []Row {
	switch {
	case one.Outcome == incident.Open:
		return items([]string{"It has not ended."})
	case one.Outcome == incident.Interrupted:
		return items([]string{"plegd stopped, or the node rebooted, while it was open. When it ended is unknown."})
	case len(one.Ending) == 0:
		return items([]string{"The record does not show what ended it."})
	}
	return items(one.Ending)
}

// timeline is the moments of an incident.
func timeline(one *incident.Incident) Section {
	out := Section{ID: "moments", Title: "What happened when", Kind: Terms}
	if one.TimelineDropped > 0 {
		out.Note = facts.Count(one.TimelineDropped, "moment is", "moments are") + " left out of the middle."
	}
	for _, m := range one.Timeline {
		s := m.Snapshot
		primary, others := splitReasons(&s.Verdict)
		state := Say(string(s.State))
		row := Row{Label: "+" + float(m.Offset), Mark: state, Text: state, Sub: said(primary.Evidence)}
		if primary.ID != "" {
			row.Text += ": " + Say(s.Reason)
		}
		if s.State != facts.StateHealthy {
			row.Text += "; " + outlook(s)
		}
		for _, a := range others {
			row.Sub = append(row.Sub, strings.Join(append([]string{"also " + Say(a.ID)}, said(a.Evidence)...), "; "))
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}
