package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
)

// TestListsThatOnlyStreamsHold: plegd sees every container by streaming, and
// does not call a node healthy whose kubelet, which asks for all of them at
// once, sees none.
func TestListsThatOnlyStreamsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fakeruntime.New(fakeruntime.Options{MaxSendMsgSize: 64 << 10})
		rt.FillPods(5, 3)
		rt.Start()
		w := watch(t, rt, nil)
		w.expect(10*time.Second, moment{state: health.StateHealthy, lastSeen: 10 * time.Second, rulesFail: -1})
		w.at(10500 * time.Millisecond)
		more := rt.FillPods(100, 3)
		// The kubelet last saw its containers at 10 s.
		w.expect(12*time.Second, moment{state: health.StateDegraded, reason: health.ListResponseTooLarge, lastSeen: 12 * time.Second, rulesFail: 178})
		if s := w.at(12 * time.Second); s.Facts.Pods.Containers["running"] != 315 {
			t.Errorf("%d containers are known, want 315", s.Facts.Pods.Containers["running"])
		}
		w.expect(190*time.Second, moment{state: health.StateDegraded, reason: health.ListResponseTooLarge, lastSeen: 190 * time.Second, rulesFail: 0})
		w.expect(191*time.Second, moment{
			state: health.StateUnhealthy, reason: health.ListResponseTooLarge, lastSeen: 191 * time.Second, rulesFail: 0,
			message: "PLEG is not healthy: pleg was last seen active 3m1s ago; threshold is 3m0s",
		})
		for _, p := range more {
			rt.RemovePod(p.UID)
		}
		w.expect(194*time.Second, moment{state: health.StateHealthy, lastSeen: 194 * time.Second, rulesFail: -1})
	})
}

// TestStreamThatNeverEnds: the refusal is named at once, whatever becomes of the
// stream after it.
func TestStreamThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fakeruntime.New(fakeruntime.Options{MaxSendMsgSize: 64 << 10})
		rt.FillPods(5, 3)
		rt.Set("StreamContainers", fakeruntime.Unended())
		rt.Start()
		w := watch(t, rt, nil)
		w.expect(10*time.Second, moment{state: health.StateHealthy, lastSeen: 10 * time.Second, rulesFail: -1})
		w.at(10500 * time.Millisecond)
		rt.FillPods(100, 3)
		for _, s := range []int{14, 19, 25, 40} {
			if v := w.at(time.Duration(s) * time.Second).Verdict; v.Reason != health.ListResponseTooLarge || v.State != health.StateDegraded {
				t.Errorf("second %d: %s, %q", s, v.State, v.Reason)
			}
		}
		if s := w.at(41 * time.Second); s.Facts.Pods.Containers["running"] != 15 {
			t.Errorf("%d containers are known, want the 15 from before", s.Facts.Pods.Containers["running"])
		}
	})
}

// TestStreamedWhileInspecting: the first relist of many pods takes its time, and
// the refusal is named before it ends.
func TestStreamedWhileInspecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fakeruntime.New(fakeruntime.Options{MaxSendMsgSize: 64 << 10})
		rt.FillPods(100, 3)
		rt.Set("PodSandboxStatus", fakeruntime.Delay(2*time.Second))
		rt.Start()
		w := watch(t, rt, nil)
		s := w.at(3 * time.Second)
		if v := s.Verdict; s.Facts.Relist.Last != nil || v.Reason != health.ListResponseTooLarge {
			t.Errorf("during the first relist: %s, %q; %+v", v.State, v.Reason, s.Facts.Relist.Last)
		}
	})
}
