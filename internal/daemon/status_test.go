package daemon

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
)

// TestConditionTrueAgain: that a condition is true again is seen within a
// second, and the kubelet's own calls come when they would have come.
func TestConditionTrueAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, fakeRuntime(10, 2), nil)
		const notReady = "container runtime network not ready: NetworkReady=false reason:R message:M"
		w.at(fault)
		w.rt.SetCondition("NetworkReady", false, "R", "M")
		w.expect(14900*time.Millisecond, well.seen(14*time.Second))
		w.expect(16500*time.Millisecond, moment{facts.StateUnhealthy, health.NetworkNotReady, 16 * time.Second, 0, notReady})
		// A call between two of the kubelet's that hangs ends when the next is due.
		w.fail("Status=hang")
		w.expect(19900*time.Millisecond, moment{facts.StateUnhealthy, health.NetworkNotReady, 19 * time.Second, 0, notReady})
		if s := w.d.Snapshot(time.Now()).Facts.Status; !s.InFlightSince.IsZero() {
			t.Errorf("a Status has been under way since %s", s.InFlightSince.Sub(w.t0))
		}
		if s := w.at(20600 * time.Millisecond).Facts.Status; !s.InFlightSince.Equal(w.t0.Add(20 * time.Second)) {
			t.Errorf("a Status has been under way since %s, want 20s", s.InFlightSince.Sub(w.t0))
		}
		w.fail("")
		w.rt.SetCondition("NetworkReady", true, "", "")
		w.at(24 * time.Second)
		w.rt.SetCondition("NetworkReady", false, "R", "M")
		w.expect(31500*time.Millisecond, moment{facts.StateUnhealthy, health.NetworkNotReady, 31 * time.Second, 0, notReady})
		w.rt.SetCondition("NetworkReady", true, "", "")
		w.expect(36*time.Second, well.seen(36*time.Second))
	})
}

// TestStatusIsSpread: beside a runtime that fails every second call, plegd's calls do
// not stay in phase with the kubelet's.
func TestStatusIsSpread(t *testing.T) {
	var c Config
	seen := map[time.Duration]bool{}
	for range 100 {
		d := c.jittered(5 * time.Second)
		if d < 4500*time.Millisecond || d > 5500*time.Millisecond {
			t.Fatalf("%s is no period of about 5 s", d)
		}
		seen[d] = true
	}
	if len(seen) < 50 {
		t.Errorf("%d different periods of 100", len(seen))
	}
}
