package daemon

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// watched is a daemon with the kubelet's real constants that watches a fake
// runtime, in a bubble where minutes pass in milliseconds.
type watched struct {
	t    *testing.T
	rt   *fakeruntime.Runtime
	d    *Daemon
	t0   time.Time
	stop func() // ends the daemon; once
}

// bubble runs f in a bubble of fake time, in parallel to the other tests.
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// watch starts one in the present bubble. Nothing takes time there that is not
// told to, so relists begin at every whole second and Status at every fifth.
func watch(t *testing.T, rt *fakeruntime.Runtime, change func(*Config)) *watched {
	t.Helper()
	return watchLogged(t, rt, change, zap.NewNop())
}

func watchLogged(t *testing.T, rt *fakeruntime.Runtime, change func(*Config), log *zap.Logger) *watched {
	t.Helper()
	cfg := DefaultConfig()
	cfg.RuntimeEndpoint = "/run/fake.sock"
	cfg.Dial = rt.Dialer()
	cfg.jitter = func(d time.Duration) time.Duration { return d }
	booted := time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC) // a bubble begins at the next midnight
	cfg.clock = func() time.Duration { return time.Since(booted) }
	cfg.StateDir, cfg.ControlSocket, cfg.WebListenAddresses = "", "", nil
	// Nothing real may be waited for in a bubble, nor judged: the machine that
	// runs the tests may itself be short of something.
	cfg.KubeletHealthzURL = ""
	cfg.ProcFS, cfg.SysFS = t.TempDir(), t.TempDir()
	if change != nil {
		change(&cfg)
	}
	d, err := New(cfg, exporter.Build{}, log)
	must.Do(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	w := &watched{t: t, rt: rt, d: d, t0: time.Now()}
	go func() { ended <- d.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		stop := time.Now()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
		if took := time.Since(stop); took > time.Second {
			t.Errorf("the daemon took %s to stop", took)
		}
	})
	t.Cleanup(func() {
		w.stop()
		rt.Stop()
		time.Sleep(time.Second) // abandoned calls end meanwhile
	})
	return w
}

// at waits until a moment of the bubble and returns the snapshot.
func (w *watched) at(d time.Duration) facts.Snapshot {
	time.Sleep(time.Until(w.t0.Add(d)))
	synctest.Wait()
	return w.d.Snapshot(time.Now())
}

func (w *watched) fail(spec string) {
	w.t.Helper()
	if err := w.rt.SetFailpoints(spec); err != nil {
		w.t.Fatal(err)
	}
}

// moment is what a test expects at one moment of the kubelet's rules.
type moment struct {
	state     facts.State
	reason    string
	lastSeen  time.Duration // since t0
	rulesFail float64       // seconds, -1 for null
	message   string        // of an unhealthy verdict
}

func (w *watched) expect(at time.Duration, want moment) {
	w.t.Helper()
	s := w.at(at)
	v := s.Verdict
	got := moment{state: v.State, reason: v.Reason, lastSeen: v.LastSeen.Sub(w.t0), rulesFail: -1}
	if v.RulesFailIn != nil {
		got.rulesFail = v.RulesFailIn.Seconds()
	}
	if v.State == facts.StateUnhealthy {
		got.message = v.KubeletMessage
	}
	if got != want {
		w.t.Fatalf("at %s\n got %+v\nwant %+v\nactive: %+v", at, got, want, v.Active)
	}
}

func fakeRuntime(pods, containers int) *fakeruntime.Runtime {
	rt := fakeruntime.New(fakeruntime.Options{})
	rt.FillPods(pods, containers)
	rt.Start()
	return rt
}

const (
	down = "container runtime is down"
	// fault is when the faults below begin: after the relist of second 10 and
	// the Status of second 10.
	fault = 10*time.Second + 500*time.Millisecond
)

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func notSeenFor(d time.Duration) string {
	return fmt.Sprintf("PLEG is not healthy: pleg was last seen active %v ago; threshold is 3m0s", d)
}

var well = moment{state: facts.StateHealthy, rulesFail: -1}

func (m moment) seen(d time.Duration) moment {
	m.lastSeen = d
	return m
}

// TestEverythingHangs: the 30-second way into NotReady, then the 3-minute rule
// on top of it, then the way back.
func TestEverythingHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, fakeRuntime(10, 2), nil)
		w.expect(10*time.Second, well.seen(10*time.Second))
		time.Sleep(500 * time.Millisecond)
		w.fail("socket=freeze")
		w.expect(12*time.Second, well.seen(10*time.Second))
		for s := 13; s < 40; s++ {
			w.expect(seconds(float64(s)), moment{facts.StateDegraded, health.RuntimeUnresponsive, 10 * time.Second, float64(40 - s), ""})
		}
		for s := 40; s <= 190; s++ {
			w.expect(seconds(float64(s)), moment{facts.StateUnhealthy, health.RuntimeUnresponsive, 10 * time.Second, 0, down})
		}
		// The message stays as the update that ended at 130 to 141 s wrote it, until
		// the next one has ended 130 s later.
		for s := 191; s <= 250; s++ {
			w.expect(seconds(float64(s)), moment{facts.StateUnhealthy, health.RuntimeUnresponsive, 10 * time.Second, 0, down})
		}
		if v := w.at(280 * time.Second).Verdict; !strings.HasPrefix(v.KubeletMessage, "["+down+", PLEG is not healthy: pleg was last seen active 4m") {
			t.Errorf("after the second update: %q", v.KubeletMessage)
		}
		w.at(300 * time.Second)
		w.fail("")
		if s := w.at(304 * time.Second); s.Verdict.State != facts.StateHealthy {
			t.Errorf("4 s after the runtime was back: %s, %s: %+v", s.Verdict.State, s.Verdict.Reason, s.Verdict.Active)
		}
	})
}

// TestListsHang: the 3-minute way into NotReady. Each call runs into its 2-min
// deadline, and the next relist begins a period later.
func TestListsHang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, fakeRuntime(10, 2), nil)
		w.at(fault)
		w.fail("ListPodSandbox=hang")
		w.expect(12*time.Second, well.seen(10*time.Second))
		for s := 13; s <= 190; s++ {
			w.expect(seconds(float64(s)), moment{facts.StateDegraded, health.RuntimeListStall, 10 * time.Second, float64(190 - s), ""})
		}
		for s := 191; s <= 200; s++ {
			w.expect(seconds(float64(s)), moment{facts.StateUnhealthy, health.RuntimeListStall, 10 * time.Second, 0, notSeenFor(seconds(float64(s - 10)))})
		}
		w.fail("")
		if s := w.at(205 * time.Second); s.Verdict.State != facts.StateHealthy {
			t.Errorf("5 s after the lists answer: %s, %s", s.Verdict.State, s.Verdict.Reason)
		}
	})
}

// TestListsAreSlow: relists of 5 s begin 6 s apart, the node stays Ready, and
// only the first slow list is taken for a stall.
func TestListsAreSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, fakeRuntime(10, 2), nil)
		w.at(fault)
		w.fail("ListContainers=delay(5s)")
		var starts []time.Duration
		for s := 11.1; s < 130; s++ {
			v := w.at(seconds(s)).Verdict
			if v.State == facts.StateUnhealthy || !v.NodeReady {
				t.Fatalf("second %g: %s: %s", s, v.State, v.KubeletMessage)
			}
			if seen := v.LastSeen.Sub(w.t0); len(starts) == 0 || starts[len(starts)-1] != seen {
				starts = append(starts, seen)
			}
			// The second slow relist ends at second 22.
			if s > 22 && (v.State != facts.StateDegraded || v.Reason != health.RelistSlow) {
				t.Fatalf("second %g: %s, %q, want degraded by RelistSlow", s, v.State, v.Reason)
			}
			if v.Reason == health.RuntimeListStall && s > 20 {
				t.Fatalf("second %g: lists that are slow are said to hang", s)
			}
		}
		for i := 3; i < len(starts); i++ {
			must.Equal(t, starts[i]-starts[i-1], 6*time.Second, "relists began at %v: want 6 s apart", starts)
		}
		w.fail("")
		if s := w.at(140 * time.Second); s.Verdict.State != facts.StateHealthy {
			t.Errorf("fast again: %s, %s", s.Verdict.State, s.Verdict.Reason)
		}
	})
}

// TestFlapping: two calls that each run into the 2-min limit, against a 3-min
// threshold, make the node flap about every four minutes.
func TestFlapping(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, fakeRuntime(10, 2), nil)
		w.at(fault)
		w.fail("ListPodSandbox=2*hang->1*off->2*hang->1*off->off")
		var changes []string
		last := facts.State("")
		for s := 11; s <= 11+2*243+10; s++ {
			v := w.at(seconds(float64(s))).Verdict
			if v.State == facts.StateStarting {
				t.Fatalf("second %d: starting", s)
			}
			if unhealthy := v.State == facts.StateUnhealthy; unhealthy != (last == facts.StateUnhealthy) {
				changes = append(changes, fmt.Sprintf("%d:%s", s, v.State))
			}
			last = v.State
		}
		// Each round: two calls of 120 s and three periods of 1 s; NotReady from
		// 180 s after the last relist that succeeded until the next one.
		want := "[191:unhealthy 253:degraded 434:unhealthy 496:degraded]"
		check.Equal(t, fmt.Sprint(changes), want, "changes")
	})
}

// TestManySlowInspections: the inspection of 200 pods of 1 s each passes the
// threshold, and the verdict predicts it.
func TestManySlowInspections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rt := fakeRuntime(200, 0)
		must.Do(t, rt.SetFailpoints("PodSandboxStatus=delay(1s)"))
		w := watch(t, rt, nil)
		for s := 14; s < 200; s++ {
			v := w.at(seconds(float64(s) + .5)).Verdict
			want := facts.StateDegraded
			if s >= 180 {
				want = facts.StateUnhealthy
			}
			if v.State != want || v.Reason != health.RelistSlow || v.RulesFailIn == nil {
				t.Fatalf("second %d: %s, %q, fails in %v", s, v.State, v.Reason, v.RulesFailIn)
			}
			if in := v.RulesFailIn.Seconds(); s < 180 && (in < 178-float64(s) || in > 180-float64(s)) {
				t.Errorf("second %d: the rules fail in %v s", s, in)
			}
			if v.LastSeenAge > 2*time.Second {
				t.Errorf("second %d: the last lists are %s old", s, v.LastSeenAge)
			}
		}
		if v := w.at(203 * time.Second).Verdict; v.State == facts.StateUnhealthy {
			t.Errorf("after the inspections: %s, %s", v.State, v.Reason)
		}
	})
}

// TestStartingEndsOnce: a verdict does not return to starting while the first relist inspects, whatever the calls beside
// the inspections do.
func TestStartingEndsOnce(t *testing.T) {
	for name, beside := range map[string]string{
		"lists are slow":            "ListContainers=delay(700ms)",
		"lists and Status are slow": "ListContainers=delay(700ms);Status=delay(3s)",
		"a later list hangs":        "ListPodSandbox=1*off->hang",
		"later lists fail late":     "ListContainers=1*off->2*delay(900ms)->error(Internal: boom)",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				rt := fakeRuntime(20, 0)
				must.Do(t, rt.SetFailpoints("PodSandboxStatus=delay(1s);"+beside))
				w := watch(t, rt, nil)
				ended := false
				for at := tick / 2; at < 20*time.Second; at += tick {
					v := w.at(at).Verdict
					starting := v.State == facts.StateStarting
					if ended && starting {
						t.Fatalf("after %s: %s, %q again", at, v.State, v.Reason)
					}
					ended = ended || !starting
				}
				check.Equal(t, ended, true, "a verdict was reached")
			})
		})
	}
}

// TestHungInspectionsEnd: inspections that hung together end together, and then
// the kubelet, too, is soon done with them.
func TestHungInspectionsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rt := fakeRuntime(12, 0)
		must.Do(t, rt.SetFailpoints("PodSandboxStatus=hang"))
		w := watch(t, rt, nil)
		if v := w.at(6 * time.Second).Verdict; v.Reason != health.PodInspectionStall {
			t.Errorf("in the hang: %s, %s", v.State, v.Reason)
		}
		w.fail("")
		// One after the other they took 72 s.
		for s := 11; s <= 80; s++ {
			if v := w.at(time.Duration(s) * time.Second).Verdict; v.State != facts.StateHealthy || v.ModelledAge > 2*time.Second {
				t.Fatalf("%d s after the hang: %s, %s, modelled %s ago: %+v", s-6, v.State, v.Reason, v.ModelledAge, v.Active)
			}
		}
	})
}

// TestStuckPods: one pod whose status hangs keeps the kubelet busy for two
// minutes, two of them for four: NotReady.
func TestStuckPods(t *testing.T) {
	for pods, unhealthy := range map[int]bool{1: false, 2: true} {
		t.Run(fmt.Sprint(pods), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := watch(t, fakeRuntime(10, 0), nil)
				w.at(fault)
				w.fail("PodSandboxStatus=hang")
				for i := range pods {
					w.rt.AddPod(fakeruntime.PodSpec{Name: fmt.Sprintf("stuck-%d", i), Namespace: "default"})
				}
				v := w.at(15 * time.Second).Verdict
				if v.State != facts.StateDegraded || v.Reason != health.PodInspectionStall {
					t.Errorf("4 s into the inspection: %s, %q", v.State, v.Reason)
				}
				was := false
				for s := 16; s < 240; s++ {
					v := w.at(seconds(float64(s))).Verdict
					must.Equal(t, v.Reason, health.PodInspectionStall, "second %d: %s", s, v.State)
					if v.LastSeenAge > 12*time.Second {
						t.Fatalf("second %d: plegd's own last seen is %s old: its inspections are cut at 10 s", s, v.LastSeenAge)
					}
					was = was || v.State == facts.StateUnhealthy
				}
				check.Equal(t, was, unhealthy, "unhealthy within four minutes")
				w.fail("")
				if v := w.at(265 * time.Second).Verdict; v.State != facts.StateHealthy {
					t.Errorf("after the pods answer: %s, %q", v.State, v.Reason)
				}
			})
		})
	}
}

// TestConditions: what Status says takes no time, in either direction.
func TestConditions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, fakeRuntime(10, 2), nil)
		w.at(fault)
		w.rt.SetCondition("NetworkReady", false, "NetworkPluginNotReady", "cni plugin not initialized")
		w.expect(16*time.Second, moment{facts.StateUnhealthy, health.NetworkNotReady, 16 * time.Second, 0,
			"container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"})
		w.rt.SetCondition("NetworkReady", true, "", "")
		w.rt.RemoveCondition("RuntimeReady")
		w.expect(21*time.Second, moment{facts.StateUnhealthy, health.RuntimeNotReady, 21 * time.Second, 0, "container runtime not ready: <nil>"})
		w.expect(46*time.Second, moment{facts.StateUnhealthy, health.RuntimeNotReady, 46 * time.Second, 0, "[container runtime is down, container runtime not ready: <nil>]"})
		w.rt.SetCondition("RuntimeReady", true, "", "")
		w.expect(51*time.Second, well.seen(51*time.Second))
	})
}

// TestNoRuntimeAtBoot: starting, with the reason named, until a rule of the
// kubelet's has had its full time; then the runtime comes.
func TestNoRuntimeAtBoot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rt := fakeruntime.New(fakeruntime.Options{})
		rt.FillPods(3, 1)
		rt.Start()
		rt.Stop()
		w := watch(t, rt, nil)
		const never = "[container runtime status check may not have completed yet, PLEG is not healthy: pleg has yet to be successful, network state unknown]"
		for s := 1; s < 30; s++ {
			v := w.at(seconds(float64(s))).Verdict
			if v.State != facts.StateStarting || v.Reason != health.RuntimeSocketMissing || v.KubeletMessage != never {
				t.Fatalf("second %d: %s, %q, %q", s, v.State, v.Reason, v.KubeletMessage)
			}
		}
		if v := w.at(30 * time.Second).Verdict; v.State != facts.StateUnhealthy || v.Reason != health.RuntimeSocketMissing {
			t.Errorf("second 30: %s, %q", v.State, v.Reason)
		}
		time.Sleep(300 * time.Millisecond)
		must.Do(t, rt.Restart())
		if s := w.at(31100 * time.Millisecond); s.Verdict.PLEGHealthy != true {
			t.Errorf("the relist after the runtime came failed: %+v", s.Facts.Relist.Last)
		}
		if v := w.at(36 * time.Second).Verdict; v.State != facts.StateHealthy {
			t.Errorf("after the first Status: %s, %q", v.State, v.Reason)
		}
	})
}

// TestStopDuringAHang: the cleanup of watch measures how long stopping takes.
func TestStopDuringAHang(t *testing.T) {
	for _, spec := range []string{"socket=freeze", "ListContainers=hang", "PodSandboxStatus=hang", "Status=hang"} {
		t.Run(spec, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := watch(t, fakeRuntime(10, 2), nil)
				w.at(fault)
				w.fail(spec)
				w.rt.AddPod(fakeruntime.PodSpec{Name: "new", Namespace: "default"})
				w.at(20 * time.Second)
			})
		})
	}
}
