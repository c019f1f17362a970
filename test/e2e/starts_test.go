//go:build e2e

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// TestRestarts restarts each version of containerd with 80 pods, by SIGTERM as its upgrade
// does and by SIGKILL. No pod may seem to change, and only the restart may be named.
func TestRestarts(t *testing.T) {
	for _, version := range []string{"", runtime.Containerd17, runtime.Containerd2} {
		t.Run(cmp.Or(version, "the machine's own"), func(t *testing.T) {
			runtime := runtime.NewContainerd(t, runtime.ContainerdOptions{Version: version})
			runtime.CRI(t).RunPods(80, 1)
			for name, end := range map[string]func(){"SIGTERM": runtime.Terminate, "SIGKILL": runtime.Kill} {
				// A plegd of its own: three restarts in five minutes are RuntimeRestarting.
				s := watched(t, runtime)
				logged, began := s.plegd.Log.Len(), time.Now()
				end()
				runtime.Start()
				s.recovers(t, time.Now(), time.Minute)
				s.plegd.AwaitRelists(30*time.Second, 2)
				// RelistSlow: 80 pods to inspect take longer than 5 s on a busy machine.
				s.onlyNamed(t, began, health.RuntimeNotListening, health.RuntimeSocketMissing, health.RuntimeStarting, health.RelistSlow)
				if events := s.plegd.Log.Events(logged); len(events) > 0 {
					t.Errorf("a restart of the runtime by %s made events: %v", name, events)
				}
				s.plegd.Stop()
			}
		})
	}
}

// TestStartsDiscovered starts plegd, and plegd check without a daemon, again and again on a
// busy machine beside a healthy containerd whose socket nobody names: no reason is named
// and no incident recorded.
func TestStartsDiscovered(t *testing.T) {
	runtime := runtime.NewContainerd(t, runtime.ContainerdOptions{AtDefault: true})
	runtime.CRI(t).RunPods(3, 1)
	lab.Binary(t) // built before the machine is busy
	for range 10 {
		lab.StartCommand(t, exec.Command("sh", "-c", "while :; do :; done"))
	}
	const times = 4
	state := t.TempDir()
	for i := range times {
		t.Run(fmt.Sprint("run ", i+1), func(t *testing.T) { runDiscovered(t, runtime, state) })
	}
	for i := range times {
		output, code := runtime.Node().Run(nil, lab.Binary(t), "check", "--output=json", "--kubelet-healthz-url=", "--control-socket="+t.TempDir()+"/none")
		var s lab.Status
		if err := facts.Unmarshal([]byte(output), &s); err != nil || !well(s) {
			t.Errorf("check %d: exit code %d, %s %s, %v\n%s", i+1, code, s.State, s.Reason, err, output)
		}
	}
}

// runDiscovered runs plegd until it is healthy and has relisted for a while, and checks
// its incidents and its log.
func runDiscovered(t *testing.T, runtime *runtime.Containerd, state string) {
	address, log := lab.FreeAddress(t), t.TempDir()+"/log"
	p := runtime.Node().Start(log, lab.Binary(t), "run", "--web.listen-address="+address, "--control-socket=", "--state-dir="+state,
		"--kubelet-healthz-url=", "--log.format=json")
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	lab.Eventually(t, 20*time.Second, "plegd is healthy and has relisted three times", func() error {
		s, err := lab.GetStatus(client, "http://"+address)
		if err == nil && (!well(s) || s.Relist.Attempts < 3) {
			err = fmt.Errorf("%s %s after %d relists", s.State, s.Reason, s.Relist.Attempts)
		}
		return err
	})
	var list []incident.Summary
	lab.Must(t, lab.GetJSON(client, "http://"+address+"/api/v1/incidents", &list))
	for _, one := range list {
		if !slices.Contains(machine, one.Reason) {
			t.Errorf("incident %s: %q", one.ID, one.Reason)
		}
	}
	check.Equal(t, p.Terminate(20*time.Second), 0, "plegd ended with")
	b, err := os.ReadFile(log)
	lab.Must(t, err)
	verdicts := 0
	for text := range strings.Lines(string(b)) {
		var line struct{ Msg, Reason string }
		if json.Unmarshal([]byte(text), &line) != nil || line.Msg != "verdict changed" {
			continue
		}
		verdicts++
		if line.Reason != "" && line.Reason != "Starting" && !slices.Contains(machine, line.Reason) {
			t.Errorf("%s on the way to healthy", line.Reason)
		}
	}
	if verdicts == 0 {
		t.Error("the log holds no verdict")
	}
}
