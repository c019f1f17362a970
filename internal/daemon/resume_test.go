package daemon

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestRestartsWithinAFault: however often plegd restarts, a fault has one begin, a verdict that is never healthy, and a
// window that holds the API's change and does not widen.
func TestRestartsWithinAFault(t *testing.T) {
	for name, tt := range map[string]struct {
		fault    string
		from, by float64 // of the API's NotReady after the begin of the fault
	}{
		"everything hangs": {"socket=freeze", 120, 130.5},
		"a list hangs":     {"ListContainers=hang", 179, 191},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { restartsWithin(t, tt.fault, tt.from, tt.by) })
		})
	}
}

// restartable returns a configuration of plegd that finds its state again, and its directory.
func restartable(t *testing.T) (config func(*Config), dir string) {
	procfs, dir := t.TempDir(), t.TempDir()
	boot := filepath.Join(procfs, "sys/kernel/random")
	mkdir(t, boot)
	write(t, filepath.Join(boot, "boot_id"), "b007\n")
	kubeletProcess(t, procfs, 100, 1)
	return func(cfg *Config) { cfg.ProcFS, cfg.StateDir = procfs, dir }, dir
}

// TestVersionOverARestart: a Version call that was in flight when plegd ended, and a hang that ended while it was away,
// are no hang of the next plegd's. One that continues is the same fault.
func TestVersionOverARestart(t *testing.T) {
	for name, tt := range map[string]struct {
		fault, later string
		stalled      bool // before the restart
	}{
		"a call was in flight":        {fault: "Version=delay(2s)"},
		"the hang ends meanwhile":     {fault: "Version=hang", stalled: true},
		"the hang continues":          {fault: "Version=hang", later: "Version=hang", stalled: true},
		"another answer is late then": {fault: "Version=delay(2s)", later: "Version=delay(2s)"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				config, _ := restartable(t)
				rt := fakeRuntime(10, 2)
				w := watch(t, rt, config)
				w.fail(tt.fault)
				before := w.at(30 * time.Second)
				for before.Facts.Version.HangsSince.IsZero() {
					before = w.at(time.Since(w.t0) + 250*time.Millisecond)
				}
				stalled := before.ActiveReason(health.NodeStatusStalled)
				must.Equal(t, stalled != nil, tt.stalled, "before the restart")
				w.stop()
				w.fail(tt.later)
				time.Sleep(6 * time.Second)
				w = watch(t, rt, config)
				for range 40 {
					s := w.at(time.Since(w.t0) + 250*time.Millisecond)
					now := s.ActiveReason(health.NodeStatusStalled)
					continues := tt.stalled && tt.later != ""
					switch {
					case s.Held && stalled == nil:
						t.Fatalf("%s after the restart a healthy verdict is held", time.Since(w.t0))
					case s.Held:
					case continues != (now != nil):
						t.Fatalf("%s after the restart: %s %s", time.Since(w.t0), s.State, s.Reason)
					case continues:
						check.Equal(t, now.Since.Round(0), stalled.Since.Round(0), "its begin")
					}
				}
			})
		})
	}
}

func restartsWithin(t *testing.T, fault string, from, by float64) {
	rt := fakeRuntime(10, 2)
	config, dir := restartable(t)
	k := startKubelet(t, rt, cri.DefaultRPCTimeout, phasesOf(1))
	w := watch(t, rt, config)
	w.at(30300 * time.Millisecond)
	w.fail(fault)
	began := time.Now()
	first := w.at(50 * time.Second).Verdict
	for _, after := range []time.Duration{20 * time.Second, 45 * time.Second, 70 * time.Second, 95 * time.Second} {
		time.Sleep(time.Until(began.Add(after)))
		w.stop()
		time.Sleep(3 * time.Second)
		w = watch(t, rt, config)
		for range 60 {
			s := w.at(time.Since(w.t0) + 250*time.Millisecond)
			v := &s.Verdict
			if v.State == facts.StateHealthy || v.State == facts.StateStarting || !v.NodeReady {
				t.Fatalf("%s after the restart: %s, node Ready %t", time.Since(w.t0), v.State, v.NodeReady)
			}
			if v.State == first.State && !v.Since.Round(0).Equal(first.Since.Round(0)) {
				t.Fatalf("the fault began at %s, and after the restart at %s", first.Since, v.Since)
			}
			if v.NotReadyIn == nil {
				t.Fatalf("%s after the restart there is no window", time.Since(w.t0))
			}
			earliest, latest := s.At.Add(*v.NotReadyIn).Sub(began).Seconds(), s.At.Add(*v.NotReadyInLatest).Sub(began).Seconds()
			if earliest > from+3 || latest < by-3 || latest-earliest > 12.5 {
				t.Fatalf("%s after the restart NotReady is predicted at %.1f to %.1f", time.Since(w.t0), earliest, latest)
			}
		}
	}
	w.at(time.Since(w.t0) + 95*time.Second)
	if different, judged := incident.Replay(recorded(t, dir)); len(different) > 0 || judged == 0 {
		t.Errorf("of %d moments of the incident these are judged differently: %+v", judged, different)
	}
	if api := k.changes(); len(api) != 1 || api[0].Sub(began).Seconds() < from || api[0].Sub(began).Seconds() > by {
		t.Errorf("the API changed at %v, %.1f to %.1f s after the fault is expected", api, from, by)
	}
}

// TestEventedKubelet: a kubelet that relies on events relists when it starts and each 300 s, with a threshold of 10 min,
// independent of plegd, or 3 min if it is newer than 1.36. plegd predicts a list that hangs by both where it does not know
// the version, and is certain of nothing before its own rule fails.
func TestEventedKubelet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		procfs := t.TempDir()
		kubeletStarts(t, procfs, 100, "--feature-gates=EventedPLEG=true")
		w := watch(t, fakeRuntime(10, 2), func(cfg *Config) { cfg.ProcFS = procfs })
		w.at(fault)
		w.fail("ListContainers=hang")
		for d := 20 * time.Second; d < 11*time.Minute; d += time.Second {
			s := w.at(fault + d)
			v := &s.Verdict
			if certain := v.State == facts.StateUnhealthy || !v.NodeReady; certain && d < 600*time.Second {
				t.Fatalf("%s into the hang: %s, node Ready %t", d, v.State, v.NodeReady)
			}
			if v.NodeReady && v.NotReadyIn == nil {
				t.Fatalf("%s into the hang there is no window", d)
			}
			fails := s.Facts.Evidence.KubeletProcess.Started.Add(10 * time.Minute).Sub(s.At) // or up to 6 s later
			late := *v.NotReadyInLatest - fails
			if fails > 0 && (late < 16*time.Second || late > 18*time.Second) {
				t.Fatalf("%s into the hang NotReady is predicted until %s after the rule fails", d, late)
			}
			threshold := "threshold is 10m0s"
			if d < 3*time.Minute {
				threshold = "threshold is 3m0s"
			}
			if d < 3*time.Minute || d > 200*time.Second {
				check.Contains(t, v.KubeletMessage, threshold, "%s into the hang", d)
			}
			early := *v.NotReadyIn - max(0, 3*time.Minute-d) // a newer kubelet's
			if fails > 0 && (early > time.Second || early < -2*time.Second) {
				t.Fatalf("%s into the hang NotReady is predicted from %s after a newer kubelet's rule fails", d, early)
			}
		}
		if v := w.at(fault + 620*time.Second).Verdict; v.State != facts.StateUnhealthy || v.NodeReady {
			t.Errorf("620 s into the hang: %s, node Ready %t", v.State, v.NodeReady)
		}
		w.fail("") // the kubelet relists within 300 s
		if v := w.at(fault + 640*time.Second).Verdict; !v.NodeReady || v.ReadyInLatest == nil || *v.ReadyInLatest < 280*time.Second {
			t.Errorf("20 s after the hang: node Ready %t, at the latest in %v", v.NodeReady, v.ReadyInLatest)
		}
		s := w.at(fault + 1000*time.Second)
		if v := &s.Verdict; !v.NodeReady || v.ReadyIn != nil || v.NotReadyIn != nil {
			t.Errorf("380 s after the hang: node Ready %t, in %v; %+v, answered %s ago", v.NodeReady, v.ReadyIn, s.Facts.NodeStatus, s.At.Sub(s.Facts.Relist.AnsweredSince))
		}
	})
}

// TestResumedChain: a verdict before a restart is kept without its chain, which is followed again.
func TestResumedChain(t *testing.T) {
	known := condition{Verdict: facts.Verdict{Reason: health.ShimStuck, WaitChain: facts.WaitChain{
		Chain: []facts.Link{{Kind: facts.KindShim, PID: 7}}, ChainEnd: "its inside cannot be seen", Culprit: &facts.Link{PID: 7},
	}}}
	resumed := known.translated(func(t time.Time) time.Time { return t })
	check.Equal(t, resumed.Verdict.Reason, health.ShimStuck, "the reason")
	c := resumed.Verdict.WaitChain
	if c.Chain != nil || c.ChainEnd != "" || c.Culprit != nil {
		t.Errorf("%+v is kept", c)
	}
}
