//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// TestRuntimeComesLater starts plegd on a node whose runtime is not there yet.
func TestRuntimeComesLater(t *testing.T) {
	t.Parallel()
	runtime := lab.NewContainerd(t, lab.ContainerdOptions{NotStarted: true})
	plegd := lab.NewPlegd(t, runtime.Socket, lab.PlegdOptions{})
	watch, begun := lab.NewWatch(t, plegd), time.Now()
	watch.Await(begun, 3*time.Second, "the missing socket is named", func(s lab.Sight) bool {
		return s.State == starting && s.Reason == health.RuntimeSocketMissing
	})
	for _, path := range []string{"/healthz", "/-/ready"} {
		if code, body, err := plegd.Get(path); err != nil || code != http.StatusOK {
			t.Errorf("%s of a plegd that starts: %d %q %v, want 200", path, code, body, err)
		}
	}
	runtime.Start()
	watch.Await(time.Now(), firstStatus, "all is well", func(s lab.Sight) bool { return well(s.Status) })
	(&subject{plegd: plegd, watch: watch}).onlyNamed(t, begun, "Starting", health.RuntimeSocketMissing, health.RuntimeStarting)
}

// TestRuntimeRestarts restarts containerd as its upgrade does. The verdict may
// change on the way; the pods must not seem to.
func TestRuntimeRestarts(t *testing.T) {
	t.Parallel()
	s := newSubject(t)
	logged, began := s.plegd.Log.Len(), time.Now()
	s.runtime.Terminate()
	s.runtime.Start()
	s.recovers(t, time.Now(), recovery)
	s.onlyNamed(t, began, health.RuntimeSocketMissing, health.RuntimeNotListening, health.RuntimeStarting)
	if events := s.plegd.Log.Events(logged); len(events) > 0 {
		t.Errorf("a restart of the runtime made events: %v", events)
	}
}

// TestStartsDiscovered starts plegd, and plegd check without a daemon, again and
// again on a busy machine beside a healthy containerd whose socket nobody names:
// no reason is named and no incident recorded.
func TestStartsDiscovered(t *testing.T) {
	runtime := lab.NewContainerd(t, lab.ContainerdOptions{AtDefault: true})
	runtime.CRI(t).RunPods(3, 1)
	lab.Binary(t) // built before the machine is busy
	for range 10 {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	const times = 4

	t.Run("run", func(t *testing.T) {
		state := t.TempDir()
		for i := range times {
			if reasons := loggedReasons(t, runDiscovered(t, runtime, state)); len(reasons) > 0 {
				t.Errorf("start %d: %q on the way to healthy", i+1, reasons)
			}
		}
	})
	t.Run("check", func(t *testing.T) {
		for i := range times {
			output, code := runtime.Node().Run(nil, lab.Binary(t), "check", "--output=json", "--kubelet-healthz-url=", "--control-socket="+t.TempDir()+"/none")
			var s lab.Status
			if err := json.Unmarshal([]byte(output), &s); err != nil || !well(s) {
				t.Errorf("check %d: exit code %d, %s %s, %v\n%s", i+1, code, s.State, s.Reason, err, output)
			}
		}
	})
}

// runDiscovered runs plegd until it is healthy and has relisted for a while, looks that
// there is no incident, ends it, and returns its log.
func runDiscovered(t *testing.T, runtime *lab.Containerd, state string) (log string) {
	t.Helper()
	address := lab.FreeAddress(t)
	log = t.TempDir() + "/log"
	p := runtime.Node().Start(log, lab.Binary(t), "run", "--web.listen-address="+address, "--control-socket=", "--state-dir="+state,
		"--kubelet-healthz-url=", "--log.format=json")
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	read := func(path string, into any) error {
		answer, err := client.Get("http://" + address + path)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		return json.NewDecoder(answer.Body).Decode(into)
	}
	lab.Eventually(t, 20*time.Second, "plegd is healthy and has relisted three times", func() error {
		var s lab.Status
		if err := read("/api/v1/status", &s); err != nil {
			return err
		}
		if !well(s) || s.Relist.Attempts < 3 {
			return fmt.Errorf("%s %s after %d relists", s.State, s.Reason, s.Relist.Attempts)
		}
		return nil
	})
	var incidents []struct {
		ID     string `json:"id"`
		Reason string `json:"reason"`
	}
	if err := read("/api/v1/incidents", &incidents); err != nil {
		t.Fatal(err)
	}
	for _, incident := range incidents {
		if !slices.Contains(machine, incident.Reason) {
			t.Errorf("incident %s: %q", incident.ID, incident.Reason)
		}
	}
	if code := p.Terminate(20 * time.Second); code != 0 {
		t.Errorf("plegd ended with %d", code)
	}
	return log
}

// loggedReasons returns the reasons of all verdicts in a plegd's log, without
// those of the machine and Starting.
func loggedReasons(t *testing.T, log string) (reasons []string) {
	t.Helper()
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	lines := 0
	for scan := bufio.NewScanner(f); scan.Scan(); {
		var line struct{ Msg, Reason string }
		if json.Unmarshal(scan.Bytes(), &line) != nil || line.Msg != "verdict changed" {
			continue
		}
		lines++
		if line.Reason != "" && line.Reason != "Starting" && !slices.Contains(machine, line.Reason) {
			reasons = append(reasons, line.Reason)
		}
	}
	if lines == 0 {
		t.Errorf("%s holds no verdict", filepath.Base(log))
	}
	return reasons
}

// TestRestartsWithManyPods restarts each version of containerd with 80 pods, by
// SIGTERM and by SIGKILL in turn.
func TestRestartsWithManyPods(t *testing.T) {
	// RelistSlow: each plegd is a new one, which finds 80 pods to inspect; on a busy
	// machine that takes longer than 5 s.
	allowed := append([]string{"", "Starting", health.RuntimeNotListening, health.RuntimeSocketMissing,
		health.RuntimeStarting, health.RelistSlow}, machine...)
	for _, version := range []string{"", lab.Containerd17, lab.Containerd2} {
		name := version
		if name == "" {
			name = "the machine's own"
		}
		t.Run(name, func(t *testing.T) {
			runtime := lab.NewContainerd(t, lab.ContainerdOptions{Version: version})
			runtime.CRI(t).RunPods(80, 1)
			for i := range 2 {
				t.Run(fmt.Sprint(i+1), func(t *testing.T) { restartNamed(t, runtime, i%2 == 1, allowed) })
			}
		})
	}
}

// restartNamed restarts a runtime under a plegd of its own (three restarts in
// five minutes are RuntimeRestarting, and rightly so), and looks at every reason
// that is named.
func restartNamed(t *testing.T, runtime *lab.Containerd, kill bool, allowed []string) {
	plegd := lab.NewPlegd(t, runtime.Socket, lab.PlegdOptions{})
	plegd.AwaitState(30*time.Second, healthy)
	plegd.AwaitRelists(30*time.Second, 2)
	end := runtime.Terminate
	if kill {
		end = runtime.Kill
	}
	logged := plegd.Log.Len()
	end()
	runtime.Start()
	lab.Eventually(t, 60*time.Second, "all is well again", func() error {
		if s, err := plegd.Status(); err != nil || !well(s) || s.Relist.Failures > 0 {
			return fmt.Errorf("%s %s, %d failures: %w", s.State, s.Reason, s.Relist.Failures, err)
		}
		return nil
	})
	plegd.AwaitRelists(30*time.Second, 2)
	for _, line := range plegd.Log.Since(logged) {
		if reason := line.String("reason"); line.Message() == "verdict changed" && !slices.Contains(allowed, reason) {
			t.Errorf("%s was named: %s", reason, line.Text)
		}
	}
	plegd.Stop()
}
