package daemon

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/relist"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

func evented(c *Config) { c.Events = relist.Evented }
func hinted(c *Config)  { c.Events = relist.Hint }

// modern is a fake runtime whose events may be listened to.
func modern(pods, containers int) *fakeruntime.Runtime {
	rt := fakeRuntime(pods, containers)
	rt.SetVersion("containerd", "v2.4.2")
	return rt
}

// starts are the moments at which the relists of the loop began, until w.at.
func (w *watched) starts(until time.Duration) []time.Duration {
	w.t.Helper()
	var out []time.Duration
	for at := time.Since(w.t0).Truncate(time.Second) + 500*time.Millisecond; at < until; at += time.Second / 2 {
		s := w.at(at)
		if l := s.Facts.Modelled.LastSeen.Sub(w.t0); len(out) == 0 || out[len(out)-1] != l {
			out = append(out, l)
		}
	}
	return out
}

// TestEventedPeriod: while a stream holds, relists are 300 s apart and the threshold is
// 10 min, in facts and gauges; the leases continue.
func TestEventedPeriod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, modern(10, 2), evented)
		s := w.at(500 * time.Millisecond)
		if s.Facts.Config.RelistPeriod != time.Second || s.Verdict.Threshold != 3*time.Minute {
			t.Errorf("before a stream holds: period %s, threshold %s", s.Facts.Config.RelistPeriod, s.Verdict.Threshold)
		}
		starts := w.starts(605 * time.Second)
		// Relists at 0 and 1 s; the stream holds at 1 s, and one shows where
		// things stand; then 300 s between end and start.
		want := []time.Duration{0, time.Second, 301 * time.Second, 601 * time.Second}
		if !slices.Equal(starts, want) {
			t.Errorf("relists began at %v, want %v", starts, want)
		}
		s = w.at(610 * time.Second)
		e := s.Facts.Events
		if s.Facts.Config.RelistPeriod != 300*time.Second || s.Verdict.Threshold != 10*time.Minute || !e.InUse || e.Phase != "streaming" {
			t.Errorf("period %s, threshold %s, %+v", s.Facts.Config.RelistPeriod, s.Verdict.Threshold, *e)
		}
		if s.Verdict.State != facts.StateHealthy || e.Errors != 0 {
			t.Errorf("%s, %+v", s.Verdict.State, *e)
		}
		if e.Opened < 59 || e.Opened > 63 {
			t.Errorf("%d streams in 610 s, want one every 10 s", e.Opened)
		}
		if n := w.rt.Subscribers(); n > 1 {
			t.Errorf("%d subscribers at once", n)
		}
	})
}

// TestEventedThreshold: the lists hang from second 10 on; by the threshold in
// force the node stays Ready for 10 min, and last seen does not move for being
// asked.
func TestEventedThreshold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, modern(10, 2), evented)
		w.at(fault)
		w.fail("ListPodSandbox=hang")
		for s := 11; s < 601; s += 10 {
			v := w.at(seconds(float64(s))).Verdict
			if v.ModelledLastSeen.Sub(w.t0) != time.Second || !v.NodeReady || v.Threshold != 10*time.Minute {
				t.Fatalf("second %d: last seen %s, ready %t, threshold %s", s, v.ModelledLastSeen.Sub(w.t0), v.NodeReady, v.Threshold)
			}
		}
		v := w.at(602 * time.Second).Verdict
		want := "PLEG is not healthy: pleg was last seen active 10m1s ago; threshold is 10m0s"
		if v.State != facts.StateUnhealthy || v.KubeletMessage != want {
			t.Errorf("second 602: %s, %q, want %q", v.State, v.KubeletMessage, want)
		}
	})
}

// TestFallBackAndReturn: four failures of the stream change nothing, the fifth
// brings back the generic period and threshold; a stream that holds for a lease
// brings back the evented ones.
func TestFallBackAndReturn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, modern(10, 2), evented)
		w.at(100 * time.Second)
		for i := 1; i <= 10; i++ {
			must.Do(t, w.rt.AwaitSubscribers(t.Context(), 1))
			w.rt.EndEvents()
			s := w.at(time.Since(w.t0) + tick)
			e, c := s.Facts.Events, s.Facts.Config
			fell := i >= 5
			period, threshold := 300*time.Second, 10*time.Minute
			if fell {
				period, threshold = time.Second, 3*time.Minute
			}
			if e.Errors != uint64(i) || e.FellBack != fell || e.InUse == fell || c.RelistPeriod != period || c.RelistThreshold != threshold {
				t.Fatalf("after %d failures: period %s, threshold %s, %+v", i, c.RelistPeriod, c.RelistThreshold, *e)
			}
			if age := s.Verdict.LastSeenAge; age > time.Second {
				t.Fatalf("after %d failures: last seen is %s old: each failure forces a relist", i, age)
			}
			if got, want := s.Verdict.State, map[bool]facts.State{false: facts.StateHealthy, true: facts.StateHealthy}[fell]; i < 5 && got != want {
				t.Fatalf("after %d failures: %s, %s", i, got, s.Verdict.Reason)
			}
		}
		s := w.at(time.Since(w.t0) + 2*time.Second)
		if s.Verdict.State != facts.StateDegraded || s.Verdict.Reason != health.EventStreamBroken {
			t.Errorf("fallen back: %s, %q", s.Verdict.State, s.Verdict.Reason)
		}
		// The next attempt is at most 3 s later, and must hold for 10 s.
		back := w.at(time.Since(w.t0) + 12*time.Second)
		e := back.Facts.Events
		if !e.InUse || e.FellBack || e.Failures != 0 || e.Phase != "streaming" || back.Facts.Config.RelistPeriod != 300*time.Second || back.Verdict.Threshold != 10*time.Minute {
			t.Errorf("the stream holds again: %s %+v", back.Facts.Config.RelistPeriod, *e)
		}
		back = w.at(time.Since(w.t0) + 4*time.Second)
		check.Equal(t, back.Verdict.State, facts.StateHealthy, "back: %q", back.Verdict.Reason)
	})
}

// TestEventedRuntimeHangs: relists are far apart, and a runtime that hangs is
// named as soon as otherwise.
func TestEventedRuntimeHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, modern(10, 2), evented)
		w.at(100500 * time.Millisecond)
		w.fail("socket=freeze")
		v := w.at(110 * time.Second).Verdict
		if v.State != facts.StateDegraded || v.Reason != health.RuntimeUnresponsive {
			t.Errorf("10 s after the freeze: %s, %q: %+v", v.State, v.Reason, v.Active)
		}
		v = w.at(131 * time.Second).Verdict
		if v.State != facts.StateUnhealthy || v.KubeletMessage != down {
			t.Errorf("30 s after the last good Status: %s, %q", v.State, v.KubeletMessage)
		}
		w.at(400 * time.Second)
		w.fail("")
		v = w.at(420 * time.Second).Verdict
		check.Equal(t, v.State, facts.StateHealthy, "thawed: %q %+v", v.Reason, v.Active)
	})
}

// TestAllowUnsafe: told to, plegd subscribes where it would not.
func TestAllowUnsafe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rt := fakeRuntime(3, 1)
		rt.SetVersion("containerd", "1.7.24")
		w := watch(t, rt, func(c *Config) { c.Events, c.EventsAllowUnsafe = relist.Hint, true })
		check.Equal(t, w.at(5*time.Second).Facts.Events.Phase, "streaming", "phase")
	})
}

// TestHintIsQuick: a container's exit is known when the event is there, not when
// the next relist is.
func TestHintIsQuick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rt := modern(10, 1)
		w := watch(t, rt, hinted)
		w.at(10100 * time.Millisecond)
		_, containers := rt.Snapshot()
		before := w.d.loop.Snapshot()
		lists := rt.Calls("ListContainers").Started
		rt.ExitContainer(containers[0].Id, 3, "")
		synctest.Wait()
		check.Equal(t, w.d.loop.Snapshot().Attempts, before.Attempts, "a relist was made: this test tests nothing")
		check.Equal(t, rt.Calls("ListContainers").Started-lists, 1, "lists of containers for one event; want one, of the pod")
		s := w.at(20 * time.Second)
		if s.Verdict.State != facts.StateHealthy || s.Facts.Config.RelistPeriod != time.Second {
			t.Errorf("%s %+v", s.Verdict.State, *s.Facts.Events)
		}
	})
}

// TestEventedWritesNothing: with events on, too, every call only reads.
func TestEventedWritesNothing(t *testing.T) {
	for _, mode := range []relist.Mode{relist.Off, relist.Hint, relist.Evented} {
		t.Run(string(mode), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := watch(t, modern(10, 2), func(c *Config) { c.Events = mode })
				for at := 10 * time.Second; at < 30*time.Second; at += time.Second {
					w.at(at)
					w.rt.Churn(0.5)
				}
				if calls := w.rt.WriteCalls(); len(calls) != 0 {
					t.Errorf("plegd made calls that write: %v", calls)
				}
			})
		})
	}
}
