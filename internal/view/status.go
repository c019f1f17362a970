package view

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
)

// Content is what the status of a node is made from.
type Content struct {
	Snapshot *health.Snapshot
	// Note is shown above the next step; empty: none.
	Note string
	// Incidents are listed, newest first.
	Incidents []incident.Summary
	// Recent are the last minutes; without bins there is no plot.
	Recent Recent
}

// Status returns the status of a node.
func Status(c Content) *Document {
	s := c.Snapshot
	primary, others := splitReasons(&s.Verdict)
	d := head(s, primary)
	d.Clock = newClock(s)
	d.Summary = terms(
		culpritTerm(s),
		Row{Label: "Predicted", Text: outlook(s)},
		Row{Label: "Kubelet", Text: kubelet(s)},
		Row{Label: "Message", Text: Say(s.KubeletMessage)},
		Row{Label: "Note", Text: c.Note},
		Row{Label: "Next", Text: Say(s.Next)},
	)
	todo := Section{ID: "todo", Title: "What to do", Kind: Steps, Rows: items(s.Steps), Column: 1}
	evidence := Section{ID: "evidence", Title: "Evidence", Kind: Items, Column: 2}
	if primary != nil {
		_, todo.Note = runbook(primary.ID)
		evidence.Rows = items(BesideChain(s, primary.Evidence))
	}
	also := Section{ID: "others", Title: "Also active", Kind: Items}
	for _, r := range others {
		also.Rows = append(also.Rows, Row{Label: Say(r.ID), Text: severity(s, &r), Sub: said(r.Evidence)})
	}
	latency := Section{ID: "latency", Title: "The last 10 minutes", Plot: newPlot(s, c.Recent)}
	d.Sections = filled(
		todo, evidence, chain(s), latency,
		stateSection(s), operations(s),
		pods(s), also, Incidents(c.Incidents[:min(len(c.Incidents), maxIncidents)]),
	)
	return d
}

// head returns a document with the verdict of a snapshot.
func head(s *health.Snapshot, primary *health.Active) *Document {
	d := &Document{Node: Say(s.Node), State: health.State(Say(string(s.State))), Title: headlines[s.State]}
	if d.Title == "" {
		d.Title = "No reason was found"
	}
	if primary != nil {
		d.Title, d.Reason, d.Detail = Say(primary.ID), known(primary.ID), severity(s, primary)
		d.Meaning, _ = runbook(primary.ID)
	} else if !s.Since.IsZero() {
		d.Detail = since(s, s.Since)
	}
	return d
}

// headlines stand where no reason is active.
var headlines = map[health.State]string{
	health.StateHealthy:  "All is well",
	health.StateStarting: "Starting",
	health.StateUnknown:  "plegd cannot see the runtime",
}

func severity(s *health.Snapshot, r *health.Active) string {
	return Say(string(r.Severity)) + ", " + since(s, r.Since)
}

// splitReasons returns the primary reason, nil if there is none, and the others.
func splitReasons(v *health.Verdict) (primary *health.Active, others []health.Active) {
	for i := range v.Active {
		if v.Active[i].ID == v.Reason && primary == nil {
			primary = &v.Active[i]
			continue
		}
		others = append(others, v.Active[i])
	}
	return primary, others
}

// statusLimit is the age of the runtime's last good status at which the kubelet
// stops managing pods (runtimeState's baseRuntimeSyncThreshold).
const statusLimit = 30 * time.Second

// High is the age in seconds from which the bar has a colour.
func (c Clock) High() float64 { return c.Limit.Seconds() / 6 }

func newClock(s *health.Snapshot) Clock {
	var c Clock
	if !s.LastSeen.IsZero() {
		c.Age, c.Limit, c.Of = s.LastSeenAge, s.Threshold, "successful relist"
		if good := s.Facts.Status.LastGood; s.RulesFailIn != nil && !good.IsZero() {
			// The rule that fails first is the one with as much time left as the prediction says.
			age := s.Age(good)
			off := func(left time.Duration) time.Duration { return (max(0, left) - *s.RulesFailIn).Abs() }
			if off(statusLimit-age) < off(c.Limit-c.Age) {
				c.Age, c.Limit, c.Of = age, statusLimit, "good status check"
			}
		}
	}
	var small string
	switch left := s.NotReadyIn; {
	case s.State == health.StateUnknown:
		c.Big, small = "unknown", "plegd cannot see the runtime; the kubelet may"
	case !s.NodeReady && s.State == health.StateStarting:
		c.Big, small = "starting", "no relist has succeeded yet"
	case !s.NodeReady:
		c.Big, small = "NotReady", "by the model of the kubelet"
	case left != nil && *left <= 0:
		c.Big, small = "NotReady", window(left, s.NotReadyInLatest)+", if nothing changes"
	case left != nil:
		c.Big, small = Left(*left), "until the API shows NotReady at the earliest, if nothing changes"
	default:
		c.Big, small = "Ready", "by the kubelet's rules"
	}
	c.Small = []string{small}
	if c.Limit > 0 {
		c.Small = append(c.Small,
			fmt.Sprintf("%s of %s since the last %s", health.Seconds(c.Age), health.Seconds(c.Limit), c.Of))
	}
	return c
}

// stateSection is the state of each part of plegd and of the runtime.
func stateSection(s *health.Snapshot) Section {
	last, now := Row{Label: "Relist", Text: lastRelist(s)}, inFlight(s)
	if now != "" {
		last.Label, last.Text = "", "the last one "+last.Text
	}
	process := Row{Label: "Process", Text: process(s), Sub: hops(s)}
	return Section{ID: "state", Title: "Current state", Kind: Terms, Column: 1, Rows: terms(
		Row{Label: "Last seen", Text: lastSeen(s)},
		Row{Label: "Relist", Text: now}, last,
		Row{Label: "Status", Text: statusCheck(s)},
		Row{Label: "Fresh dial", Text: dial(s, &s.Facts.Probe)},
		Row{Label: "Runtime", Text: runtime(s)},
		process,
		Row{Label: "Missing", Text: missing(s)},
	)}
}

// operations are the calls to the runtime.
func operations(s *health.Snapshot) Section {
	out := Section{ID: "operations", Title: "Calls to the runtime", Kind: Table, Column: 2,
		Heads: []string{"Call", "Last OK", "Took", "In flight", "Last error"}}
	for _, name := range slices.Sorted(maps.Keys(s.Facts.Calls)) {
		c := s.Facts.Calls[name]
		row := Row{Cells: []string{Shorten(Say(name), 24), age(s, c.LastOK), "", "", ""}}
		if !c.LastOK.IsZero() {
			row.Cells[2] = health.Seconds(c.LastOKDuration)
		}
		if !c.InFlightSince.IsZero() {
			row.Cells[3] = health.Seconds(s.Age(c.InFlightSince))
		}
		if c.LastErr != nil {
			row.Cells[4] = Shorten(Say(c.LastErr.Code), 20)
			if !c.LastFailed.IsZero() {
				row.Cells[4] += ", " + age(s, c.LastFailed)
			}
			if c.LastFailed.After(c.LastOK) {
				row.Mark, row.Sub = MarkBad, []string{errorCause(c.LastErr)}
			}
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}

// slowAfter is how long an inspection takes that is shown: it delays the next relist.
const slowAfter = time.Second

// pods are the inspections that are stuck, have failed or were slow.
func pods(s *health.Snapshot) Section {
	out := Section{ID: "pods", Title: "Slow pods", Kind: Table, Heads: []string{"Pod", "Took", "In", "Result"}}
	r := &s.Facts.Relist
	seen := map[string]bool{}
	for _, p := range slices.Concat(r.Inspecting, r.Failing, r.Slowest) {
		took, result := p.Duration, "ok"
		switch {
		case took == 0:
			took, result = s.Age(p.Start), "under way"
		case p.Err != nil:
			result = "failed " + health.Count(max(1, p.Failures), "time", "times")
		}
		if key := p.UID + result; took < slowAfter && p.Err == nil || seen[key] {
			continue
		} else {
			seen[key] = true
		}
		name := Shorten(Say(p.Namespace+"/"+p.Name), 48)
		row := Row{Cells: []string{name, health.Seconds(took), Shorten(Say(p.Operation), 18), result}}
		if p.Err != nil {
			row.Mark, row.Sub = MarkBad, []string{errorCause(p.Err)}
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}

// maxIncidents is how many incidents the status lists.
const maxIncidents = 10
