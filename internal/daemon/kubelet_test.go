package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/relist"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// kubeletStarts puts a kubelet's process that has just started into a procfs.
func kubeletStarts(t *testing.T, procFS string, pid int, args ...string) {
	t.Helper()
	var up unix.Timespec
	must.Do(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &up))
	kubeletProcess(t, procFS, pid, up.Nano()/int64(10*time.Millisecond), args...)
}

// statLine is a kubelet's /proc/PID/stat.
const statLine = "%d (kubelet) S 1 %d %d 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 12 0 %d 0 0 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"

// kubeletProcess puts a kubelet's process into a procfs, with its start in ticks
// after the boot.
func kubeletProcess(t *testing.T, procFS string, pid int, ticks int64, args ...string) {
	t.Helper()
	dir := filepath.Join(procFS, fmt.Sprint(pid))
	for file, content := range map[string]string{
		"comm": "kubelet\n", "cgroup": "0::/system.slice/kubelet.service\n",
		"cmdline": strings.Join(append([]string{"/usr/bin/kubelet", "--kubeconfig=/none"}, args...), "\x00") + "\x00",
		"status":  "Uid:\t0\t0\t0\t0\n", "../1/status": "Uid:\t0\t0\t0\t0\n", "../1/cgroup": "0::/init.scope\n",
		"../1/stat": strings.Replace(fmt.Sprintf(statLine, 1, 1, 1, 0), "kubelet", "systemd", 1),
	} {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
	}
	// The last: a search at the same moment finds the whole process or none.
	must.Do(t, os.WriteFile(filepath.Join(dir, "stat"), fmt.Appendf(nil, statLine, pid, pid, pid, ticks), 0o600))
}

// TestKubeletRestartsInAHang: the model begins again with the kubelet, with the
// message of one that has yet to relist; a restart while all is well changes
// nothing.
func TestKubeletRestartsInAHang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		procFS := t.TempDir()
		kubeletStarts(t, procFS, 100)
		w := watch(t, fakeRuntime(10, 2), func(cfg *Config) { cfg.ProcFS = procFS })
		w.expect(30*time.Second, well.seen(30*time.Second))
		must.Do(t, os.RemoveAll(filepath.Join(procFS, "100")))
		kubeletStarts(t, procFS, 200)
		for s := 31; s <= 60; s++ {
			if v := w.at(seconds(float64(s))).Verdict; v.State != facts.StateHealthy || !v.NodeReady {
				t.Fatalf("second %d: a kubelet that restarts makes the verdict %s, %q, %q", s, v.State, v.Reason, v.KubeletMessage)
			}
		}
		w.at(60*time.Second + 500*time.Millisecond)
		w.fail("ListContainers=hang")
		w.at(80*time.Second + 500*time.Millisecond)
		must.Do(t, os.RemoveAll(filepath.Join(procFS, "200")))
		kubeletStarts(t, procFS, 300)
		s := w.at(86 * time.Second)
		const want = "PLEG is not healthy: pleg has yet to be successful"
		if v := s.Verdict; v.State != facts.StateUnhealthy || v.KubeletMessage != want {
			t.Errorf("5 s after the restart: %s, message %q, want unhealthy, %q", v.State, v.KubeletMessage, want)
		}
		// Its first update waits for its first lists, which hang for 2 min.
		if v := s.Verdict; !v.NodeReady || v.NotReadyIn == nil || *v.NotReadyIn < 110*time.Second || *v.NotReadyInLatest > 125*time.Second {
			t.Errorf("5 s after the restart: node Ready %t, NotReady in %v to %v, want Ready and 110 s to 125 s", v.NodeReady, v.NotReadyIn, v.NotReadyInLatest)
		}
		if got := s.Facts.KubeletStarted.Sub(w.t0); got < 78*time.Second || got > 83*time.Second {
			t.Errorf("the kubelet started at %s", got)
		}
		// It ends again: plegd does not start for that.
		must.Do(t, os.RemoveAll(filepath.Join(procFS, "300")))
		for s := 87; s <= 110; s++ {
			if v := w.at(seconds(float64(s))).Verdict; v.State != facts.StateUnhealthy || !v.NodeReady {
				t.Fatalf("second %d: a kubelet that ends in a hang makes the verdict %s, %q, node Ready %t", s, v.State, v.KubeletMessage, v.NodeReady)
			}
		}
		w.fail("")
		if v := w.at(116 * time.Second).Verdict; v.State != facts.StateHealthy {
			t.Errorf("the lists answer again: %s, %q, %q", v.State, v.Reason, v.KubeletMessage)
		}
	})
}

// TestKubeletSettings: the kubelet's own settings count, and a flag that the user
// gave wins.
func TestKubeletSettings(t *testing.T) {
	for _, given := range []bool{false, true} {
		t.Run(fmt.Sprint(given), func(t *testing.T) { bubble(t, func(t *testing.T) { kubeletSettings(t, given) }) })
	}
}

// TestUnreadSettings: where a file of the kubelet's cannot be read, a default is not its word.
func TestUnreadSettings(t *testing.T) {
	cfg := DefaultConfig()
	for problem, want := range map[string]string{"": "default", "/k.yaml: denied": "default: not all of the kubelet's files could be read"} {
		var out facts.Config
		cfg.settings(&facts.Evidence{KubeletProcess: &facts.KubeletProcess{Problem: problem}}, &out)
		check.Equal(t, out.From[facts.SettingRequestTimeout], want, "%q", problem)
	}
}

// TestReliesOnEvents: a kubelet with EventedPLEG relists each second again once its event stream has failed.
func TestReliesOnEvents(t *testing.T) {
	started := time.Now()
	for name, tt := range map[string]struct {
		runtime *facts.Process
		version string
		want    time.Duration // the threshold; 0: as it is
		perhaps bool          // it may have stopped to
	}{
		"the runtime is older":      {&facts.Process{Alive: true, Start: started.Add(-time.Hour)}, "v1.36.2", relist.EventedThreshold, false},
		"an unknown runtime":        {nil, "v1.36.2", relist.EventedThreshold, false},
		"an unknown version":        {&facts.Process{Alive: true, Start: started.Add(-time.Hour)}, "", relist.EventedThreshold, true},
		"the runtime has restarted": {&facts.Process{Alive: true, Start: started.Add(time.Hour)}, "", relist.EventedThreshold, true},
		"the runtime has ended":     {&facts.Process{Start: started.Add(-time.Hour)}, "v1.34.0", relist.EventedThreshold, true},
		"a newer kubelet":           {nil, "v1.37.0", 0, false},
	} {
		evidence := facts.Evidence{
			Hop: facts.Hop{Process: tt.runtime}, Kubelet: &facts.Kubelet{Version: tt.version},
			KubeletProcess: &facts.KubeletProcess{EventedPLEG: true, Started: started},
		}
		cfg := DefaultConfig()
		out := facts.Config{RelistThreshold: cfg.RelistThreshold}
		cfg.settings(&evidence, &out)
		if out.RelistThreshold != max(tt.want, cfg.RelistThreshold) || (out.KubeletRelistPeriod > 0) != (tt.want > 0) || (out.EarliestThreshold > 0) != tt.perhaps {
			t.Errorf("%s: a threshold of %s, perhaps %s, a period of %s", name, out.RelistThreshold, out.EarliestThreshold, out.KubeletRelistPeriod)
		}
	}
}

func kubeletSettings(t *testing.T, given bool) {
	procFS := t.TempDir()
	kubeletStarts(t, procFS, 100, "--runtime-request-timeout=15s", "--node-status-update-frequency=20s", "--container-runtime-endpoint=/run/fake.sock")
	w := watch(t, fakeRuntime(1, 1), func(cfg *Config) {
		cfg.ProcFS = procFS
		cfg.Given = func(flag string) bool { return given && flag == "rpc-timeout" }
	})
	c := w.at(10 * time.Second).Facts.Config
	timeout, from := 15*time.Second, "the kubelet's arguments"
	if given {
		timeout, from = 2*time.Minute, "--rpc-timeout"
	}
	if c.RPCTimeout != timeout || c.From["runtimeRequestTimeout"] != from || c.NodeStatusPeriod != 20*time.Second {
		t.Errorf("given %t: requests of %s, updates every %s, from %v", given, c.RPCTimeout, c.NodeStatusPeriod, c.From)
	}
	w.fail("ListContainers=hang")
	s := w.at(30 * time.Second)
	if failed := s.Facts.Relist.Failures > 0; failed == given {
		t.Errorf("given %t: %d relists have failed after 20 s", given, s.Facts.Relist.Failures)
	}
}
