package exporter

import (
	"strings"

	"github.com/plegd/plegd/internal/health"
)

// headline is the page's largest line where no reason is active.
func headline(d *StatusDocument) string {
	switch health.State(d.State) {
	case health.StateHealthy:
		return "All is well"
	case health.StateStarting:
		return "Starting"
	default:
		return "No reason was found"
	}
}

// pageClock is what the page shows largest beside the verdict: how long there
// is, or that there is no hurry.
type pageClock struct {
	Big, Small string
	// High is the age of the last seen from which on it is worth a colour.
	High float64
}

func newPageClock(d *StatusDocument) pageClock {
	c := pageClock{High: d.Threshold / 6}
	switch left := d.NotReadyIn; {
	case !d.NodeReady && health.State(d.State) == health.StateStarting:
		c.Big, c.Small = "starting", "no relist has succeeded yet"
	case !d.NodeReady:
		c.Big, c.Small = "NotReady", "by the kubelet's rules"
	case left != nil:
		c.Big, c.Small = formatLeft(*left), "until the kubelet reports NotReady, if nothing changes"
	default:
		c.Big, c.Small = "Ready", "by the kubelet's rules"
	}
	if d.LastSeenAge != nil && d.NotReadyIn == nil {
		c.Small += "; last seen " + formatSeconds(*d.LastSeenAge) + " ago"
	}
	return c
}

// maxIncidents is how many incidents the page lists.
const maxIncidents = 10

// incidentRow is one incident in the page's list.
type incidentRow struct{ Path, Opened, Lasted, State, Reason, Outcome string }

func incidentRows(d *StatusDocument) []incidentRow {
	list := d.Incidents[:min(len(d.Incidents), maxIncidents)]
	rows := make([]incidentRow, 0, len(list))
	for i := range list {
		s := &list[i]
		lasted := s.Duration
		if s.Closed == nil {
			lasted = max(lasted, d.Now.Sub(s.Opened).Seconds()) // it goes on
		}
		rows = append(rows, incidentRow{
			Path: PathIncidents + "/" + s.ID, Opened: s.Opened.UTC().Format(wallTime), Lasted: formatSeconds(lasted),
			State: say(string(s.State)), Reason: say(s.Reason) + others(s), Outcome: outcome(s),
		})
	}
	return rows
}

// stepPart is a piece of a step of a runbook: words, or a command.
type stepPart struct {
	Text string
	Code bool
}

// runbook returns what the table says of a reason; nothing for one that it does
// not hold, which a newer daemon may have sent.
func runbook(id string) (meaning string, steps [][]stepPart, restart string) {
	for _, r := range health.Reasons() {
		if r.ID != id {
			continue
		}
		for _, s := range r.Steps {
			steps = append(steps, stepParts(s))
		}
		return r.Meaning, steps, r.RestartAnswer()
	}
	return "", nil, ""
}

// stepParts splits a step at the backticks around its commands.
func stepParts(s string) []stepPart {
	var out []stepPart
	for i, part := range strings.Split(s, "`") {
		if part != "" {
			out = append(out, stepPart{Text: part, Code: i%2 == 1})
		}
	}
	return out
}
