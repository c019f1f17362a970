package page

import (
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view"
)

// headline is the page's largest line where no reason is active.
func headline(d *view.StatusDocument) string {
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

func newPageClock(d *view.StatusDocument) pageClock {
	c := pageClock{High: d.Threshold / 6}
	rules := view.PhraseRules(d)
	switch left := d.NotReadyIn; {
	case !d.Kubelet.NodeReady && health.State(d.State) == health.StateStarting:
		c.Big, c.Small = "starting", "no relist has succeeded yet"
	case !d.Kubelet.NodeReady:
		c.Big, c.Small = "NotReady", "by the model of the kubelet; "+rules
	case left != nil && *left <= 0:
		c.Big, c.Small = "NotReady", view.PhraseWindow(left, d.NotReadyInLatest)+", if nothing changes; "+rules
	case left != nil:
		c.Big, c.Small = view.FormatLeft(*left), "until the node turns NotReady at the earliest, if nothing changes; "+rules
	default:
		c.Big, c.Small = "Ready", "by the kubelet's rules"
	}
	c.Small = strings.TrimSuffix(c.Small, "; ")
	if d.LastSeenAge != nil && d.NotReadyIn == nil {
		c.Small += "; last seen " + view.FormatSeconds(*d.LastSeenAge) + " ago"
	}
	return c
}

// maxIncidents is how many incidents the page lists.
const maxIncidents = 10

// incidentRow is one incident in the page's list.
type incidentRow struct{ Path, Opened, Lasted, State, Reason, Outcome string }

// UntilNow returns the heads with the durations of open incidents until now, by
// the monotonic clock.
func UntilNow(list []incident.Summary, now time.Time) []incident.Summary {
	out := slices.Clone(list)
	for i := range out {
		if s := &out[i]; s.Closed == nil && !s.Began.IsZero() {
			s.Duration = max(s.Duration, now.Sub(s.Began).Seconds())
		}
	}
	return out
}

func incidentRows(d *view.StatusDocument) []incidentRow {
	list := d.Incidents[:min(len(d.Incidents), maxIncidents)]
	rows := make([]incidentRow, 0, len(list))
	for i := range list {
		s := &list[i]
		rows = append(rows, incidentRow{
			Path: view.PathIncidents + "/" + s.ID, Opened: s.Opened.UTC().Format(view.WallTime), Lasted: view.FormatSeconds(s.Duration),
			State: view.Say(string(s.State)), Reason: view.Say(s.Reason) + view.Others(s), Outcome: view.Outcome(s),
		})
	}
	return rows
}

// stepPart is a piece of a step of a runbook: words, or a command.
type stepPart struct {
	Text string
	Code bool
}

// runbook returns what the table says of the primary reason on this runtime;
// nothing for one that it does not hold, which a newer daemon may have sent.
func runbook(d *view.StatusDocument, id string) (meaning, restart string) {
	for _, r := range health.Reasons() {
		if r.ID != id {
			continue
		}
		if d.Runtime != nil {
			r = r.ForRuntime(health.Runtime{Name: d.Runtime.Name, Version: d.Runtime.Version})
		}
		return r.Meaning, r.RestartAnswer()
	}
	return "", ""
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
