package kubelet

import (
	"slices"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/facts/factstest"
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
