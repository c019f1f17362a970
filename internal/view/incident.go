package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
)

// wallTime is the format of a moment.
const wallTime = "2006-01-02 15:04:05 MST"

// Float prints a number of seconds as Seconds prints a duration.
func Float(seconds float64) string {
	return health.Seconds(time.Duration(seconds * float64(time.Second)))
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
		out.Rows = append(out.Rows, Row{
			Cells: []string{
				Say(s.ID), s.Opened.UTC().Format(wallTime), Float(s.Duration), Say(string(s.State)), reason, outcome(s),
			},
			Link: PathIncidentPages + "/" + s.ID,
		})
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
// is open; nil where that is not known.
func Incident(one *incident.Incident, now *health.Snapshot) *Document {
	d := &Document{
		State: health.State(Say(string(one.State))), Detail: outcome(&one.Summary),
		Title: Say(one.Reason), Reason: known(one.Reason),
		Clock: Clock{Big: Float(one.Duration), Small: []string{lasted(one)}},
	}
	d.Meaning, _ = runbook(one.Reason)
	if now != nil {
		d.Node = Say(now.Node)
	}
	if one.Closed == nil && now != nil {
		d.Clock.Small = append(d.Clock.Small, "now: "+outlook(now))
	}
	d.Summary = terms(
		Row{Label: "Incident", Text: Say(one.ID) + ", " + lasted(one) + ", for " + Float(one.Duration)},
		Row{Label: "Node", Text: notReadyFor(one)},
		Row{Label: "Message", Text: Say(one.KubeletMessage)},
	)
	ended := Section{ID: "ending", Title: "What ended it", Kind: Items, Rows: ending(one), Column: 1}
	best := explaining(one)
	if best == nil {
		d.Sections = []Section{ended}
		return d
	}
	at := " at " + best.At.UTC().Format(time.TimeOnly)
	links, state := chain(best), stateSection(best)
	links.Title, state.Title, state.Column = links.Title+at, state.Title+at, 0
	d.Summary = append(terms(culpritTerm(best)), d.Summary...)
	d.Sections = filled(
		ended, Section{ID: "todo", Title: "Steps that plegd named", Kind: Items, Rows: items(best.Steps), Column: 1},
		links, timeline(one), state,
	)
	return d
}

// explaining returns the snapshot that explains an incident best: the last one with a
// culprit, or else the last one with the incident's reason; nil if no moment is kept.
func explaining(one *incident.Incident) (best *health.Snapshot) {
	most := -1
	for i := range one.Timeline {
		s, score := one.Timeline[i].Snapshot, 0
		switch {
		case s == nil:
			continue
		case s.Culprit != nil:
			score = 2
		case s.Reason == one.Reason:
			score = 1
		}
		if score >= most {
			best, most = s, score
		}
	}
	return best
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
	total, last := 0.0, (*health.Snapshot)(nil)
	for i := range one.Timeline {
		m, to := &one.Timeline[i], one.Duration
		if i+1 < len(one.Timeline) {
			to = one.Timeline[i+1].Offset
		}
		if last = m.Snapshot; last != nil && !last.NodeReady && last.State != health.StateStarting {
			total += to - m.Offset
		}
	}
	pending := last != nil && !last.NodeReady && last.ReadyIn != nil
	out := "NotReady for " + Float(total) + " by the model of the kubelet"
	switch {
	case total <= 0 && !pending:
		return "it stayed Ready by the model of the kubelet"
	case one.Outcome == incident.Open:
		out += " so far"
	case pending:
		out += "; Ready again with the status update after the end, " + window(last.ReadyIn, last.ReadyInLatest)
	}
	return out
}

// ending describes how an incident ended, and the differences after it.
func ending(one *incident.Incident) []Row {
	switch {
	case one.Outcome == incident.Open:
		return []Row{{Text: "It has not ended."}}
	case one.Outcome == incident.Interrupted:
		return []Row{{Text: "plegd stopped, or the node rebooted, while it was open. When it ended is unknown."}}
	case len(one.Ending) == 0:
		return []Row{{Text: "The record does not show what ended it."}}
	}
	return items(one.Ending)
}

// timeline is the moments of an incident.
func timeline(one *incident.Incident) Section {
	out := Section{ID: "moments", Title: "What happened when", Kind: Terms}
	if one.TimelineDropped > 0 {
		out.Note = health.Count(one.TimelineDropped, "moment is", "moments are") + " left out of the middle."
	}
	for i := range one.Timeline {
		m := &one.Timeline[i]
		s := m.Snapshot
		if s == nil {
			continue
		}
		primary, others := splitReasons(&s.Verdict)
		row := Row{Label: "+" + Float(m.Offset), Mark: Say(string(s.State)), Text: Say(string(s.State))}
		if primary != nil {
			row.Text, row.Sub = row.Text+": "+Say(s.Reason), said(primary.Evidence)
		}
		if s.State != health.StateHealthy {
			row.Text += "; " + outlook(s)
		}
		for _, a := range others {
			row.Sub = append(row.Sub, strings.Join(append([]string{"also " + Say(a.ID)}, said(a.Evidence)...), "; "))
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}
