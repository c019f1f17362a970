package kubelet

import (
	"slices"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/factstest"
)

var states = []State{Unobserved, Ready, Falling, NotReady, Unsettled, Silent, Unknown}

// TestTransitions: each state but Ready ends while all is well, and no row leads back to where it comes from.
func TestTransitions(t *testing.T) {
	for _, row := range transitions {
		if row.observation == "" || slices.Contains(row.states, row.next) {
			t.Errorf("from %v to %s by %q", row.states, row.next, row.observation)
		}
	}
	for _, state := range states {
		m := Model{state: state, holding: true, turned: ago(time.Hour), turnedBefore: ago(2 * time.Hour), doubt: state != Ready && state != Falling}
		f := factstest.Healthy(t0)
		f.Version.Ended = t0
		status, _ := m.Observe(&f, t0, Observations{AttemptMade: true})
		if m.state != Ready || status != (facts.NodeStatus{State: "ready"}) {
			t.Errorf("%s while all is well: %s, %+v", state, m.state, status)
		}
	}
}

// TestFlakyStatus: a Status that fails every second time for plegd may fail each time for a kubelet whose calls
// alternate with plegd's. That only opens a window; it ends with the failures. One failure opens none.
func TestFlakyStatus(t *testing.T) {
	const period = 5 * time.Second
	for name, tt := range map[string]struct {
		failures int
		answered bool // between any two failures
		opens    bool
	}{"again and again": {20, true, true}, "once": {1, true, false}, "without an answer between": {3, false, false}} {
		var m Model
		opened := false
		for i := range 60 {
			now := at(time.Duration(i) * period)
			f := factstest.Healthy(now)
			f.Started, f.Version.Ended = ago(time.Hour), now
			if failed := min(i/2, tt.failures-1); i >= 2 {
				f.Calls = map[string]facts.Call{opStatus: {LastFailed: at(time.Duration(2*failed+2) * period)}}
			}
			if !tt.answered && i < 7 {
				f.Status.LastGood = at(period)
			}
			status, _ := m.Observe(&f, now, Observations{AttemptMade: true})
			opened = opened || !status.NotReadyFrom.IsZero() && !status.NotReadyFrom.After(now)
			if status.NotReady {
				t.Fatalf("%s: NotReady at %s", name, now.Sub(t0))
			}
		}
		if opened != tt.opens || m.state != Ready {
			t.Errorf("%s: a window opened: %t, want %t; in the end %s", name, opened, tt.opens, m.state)
		}
	}
}

// TestRefusedStatus: the kubelet's metrics widen the window where its Status calls fail alone, by the age of a sample and
// a period of Status; not where plegd's own fail with them.
func TestRefusedStatus(t *testing.T) {
	const normal = 12 * time.Second
	for name, tt := range map[string]struct{ good, failing, width time.Duration }{
		"the runtime is killed, in a sample at once":    {good: 0, failing: time.Second, width: normal},
		"the runtime is killed, in the sample after":    {good: 0, failing: 9 * time.Second, width: normal},
		"the kubelet's alone":                           {good: 10 * time.Second, failing: 9 * time.Second, width: normal + StatusPeriod + metricsAge},
		"the kubelet's first, then plegd's own as well": {good: 5 * time.Second, failing: 4 * time.Second, width: normal + StatusPeriod + metricsAge},
	} {
		var m Model
		now := at(10 * time.Second)
		f := factstest.Healthy(now)
		f.Started = ago(time.Hour)
		f.Version.Ended = now
		f.Status.LastGood = at(tt.good)
		f.Evidence.Kubelet = &facts.Kubelet{Status: &facts.StartCalls{Errors: 2, Since: at(tt.failing)}}
		status, _ := m.Observe(&f, now, Observations{AttemptMade: true})
		if width := status.NotReadyBy.Sub(status.NotReadyFrom); width.Round(time.Second/10) != tt.width {
			t.Errorf("%s: the window is %s wide, want %s: %+v", name, width, tt.width, status)
		}
	}
}
