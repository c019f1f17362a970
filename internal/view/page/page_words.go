package page

import (
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view"
)

// headline is the page's largest line where no reason is active.
func headline(s *health.Snapshot) string {
	switch s.State {
	case health.StateHealthy:
		return "All is well"
	case health.StateStarting:
		return "Starting"
	case health.StateUnknown:
		return "plegd cannot see the runtime"
	default:
		return "No reason was found"
	}
}

// pageClock is what the page shows largest beside the verdict: how long there
// is, or that nothing points to NotReady.
type pageClock struct {
	Big, Small string
	// Age is that of what the deciding rule watches, What its name, Limit the
	// rule's limit; High is the age in seconds from which it has a colour.
	Age, Limit time.Duration
	What       string
	High       float64
}

// statusLimit is the age of the runtime's last good status at which the kubelet
// stops managing pods (runtimeState's baseRuntimeSyncThreshold).
const statusLimit = 30 * time.Second

// decidingRule sets what the bar measures: the rule that fails first.
func (c *pageClock) decidingRule(s *health.Snapshot) {
	if s.LastSeen.IsZero() {
		return
	}
	c.Age, c.Limit, c.What = s.LastSeenAge, s.Threshold, "successful relist"
	if good := s.Facts.Status.LastGood; s.RulesFailIn != nil && !good.IsZero() {
		age := s.Age(good)
		off := func(left time.Duration) time.Duration { return (max(0, left) - *s.RulesFailIn).Abs() }
		if off(statusLimit-age) < off(c.Limit-c.Age) {
			c.Age, c.Limit, c.What = age, statusLimit, "good status check"
		}
	}
	c.High = c.Limit.Seconds() / 6
}

func newPageClock(s *health.Snapshot) pageClock {
	var c pageClock
	c.decidingRule(s)
	rules := view.Rules(s)
	switch left := s.NotReadyIn; {
	case s.State == health.StateUnknown:
		c.Big, c.Small = "unknown", "plegd cannot see the runtime; the kubelet may"
	case !s.NodeReady && s.State == health.StateStarting:
		c.Big, c.Small = "starting", "no relist has succeeded yet"
	case !s.NodeReady:
		c.Big, c.Small = "NotReady", "by the model of the kubelet; "+rules
	case left != nil && *left <= 0:
		c.Big, c.Small = "NotReady", view.Window(left, s.NotReadyInLatest)+", if nothing changes; "+rules
	case left != nil:
		c.Big, c.Small = view.Left(*left), "until the node turns NotReady at the earliest, if nothing changes; "+rules
	default:
		c.Big, c.Small = "Ready", "by the kubelet's rules"
	}
	c.Small = strings.TrimSuffix(c.Small, "; ")
	if !s.LastSeen.IsZero() && s.NotReadyIn == nil {
		c.Small += "; last seen " + view.Seconds(s.LastSeenAge) + " ago"
	}
	return c
}

// maxIncidents is how many incidents the page lists.
const maxIncidents = 10

// incidentRow is one incident in the page's list.
type incidentRow struct{ Path, Opened, Lasted, State, Reason, Outcome string }

// incidentRows lists the incidents; the durations of open ones are until now, by
// the monotonic clock.
func incidentRows(list []incident.Summary, now time.Time) []incidentRow {
	list = list[:min(len(list), maxIncidents)]
	rows := make([]incidentRow, 0, len(list))
	for i := range list {
		s := &list[i]
		lasted := s.Duration
		if s.Closed == nil && !s.Began.IsZero() {
			lasted = max(lasted, now.Sub(s.Began).Seconds())
		}
		rows = append(rows, incidentRow{
			Path: view.PathIncidentPages + "/" + s.ID, Opened: s.Opened.UTC().Format(view.WallTime), Lasted: view.Float(lasted),
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

// stepParts splits a step at the backticks around its commands.
func stepParts(s string) []stepPart {
	var out []stepPart
	for i, part := range strings.Split(s, "`") {
		if i > 0 && i%2 == 0 { // after a command, which has a line of its own
			part = strings.TrimLeft(part, ":,; ")
		}
		if part != "" {
			out = append(out, stepPart{Text: part, Code: i%2 == 1})
		}
	}
	return out
}
