//go:build e2e

package kubelet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// netPods are the static pods that need a network of their own.
const netPods = 3

// cniPlugin is a network plugin that waits while a file is there, for any
// asked for, and gives out an address otherwise.
const cniPlugin = `#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"0.3.1","supportedVersions":["0.3.1"]}'; exit;;
esac
while [ -e '%s' ]; do sleep 0.2; done
[ "$CNI_COMMAND" = ADD ] || exit 0
echo '{"cniVersion":"0.3.1","interfaces":[{"name":"eth0","sandbox":"'"$CNI_NETNS"'"}],"ips":[{"version":"4","interface":0,"address":"10.9.0.2/24"}],"dns":{}}'
`

// podStartsFailing: a network plugin hangs for longer than the kubelet's deadline of
// RunPodSandbox. The calls fail, those that follow find the name reserved, and lists and
// Status stay perfect; plegd learns of it by the kubelet's metrics. When the plugin is well
// again so is everything.
var podStartsFailing = scenario{name: "PodStartsFailing", real: true, metrics: true, requestTimeout: 15 * second, run: (*lane).podStartsFailing}

// unpredicted are the scenarios that compare no prediction.
var unpredicted = []scenario{podStartsFailing, {name: "NodePaused", run: (*lane).nodePaused}}

// nodePaused stops the runtime, the kubelet and plegd until the API shows Unknown, as a suspended machine does. plegd then
// names the pause, and is healthy when the API shows Ready again.
func (l *lane) nodePaused() {
	t := l.T
	l.Sleep(calm)
	processes := []*lab.NodeProcess{l.kubelet, l.simulated.process, l.plegd}
	for _, p := range processes {
		p.Freeze()
	}
	paused := time.Now()
	turned := l.AwaitReady(false, 2*minute)
	for _, p := range processes {
		p.Thaw()
	}
	woke := time.Now()
	if !turned {
		t.Fatalf("the API shows Ready %s after the pause began", woke.Sub(paused))
	}
	lab.Eventually(t, 20*second, "plegd names "+health.NodePaused, func() error {
		s, err := l.status()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(s.Active, func(a facts.Active) bool { return a.ID == health.NodePaused }) {
			return fmt.Errorf("%s %s: %+v", s.State, s.Reason, s.Active)
		}
		return nil
	})
	lab.Report(t, "NodePaused: the API shows %q; plegd names the pause %s after it ended", l.api.Last().Message, time.Since(woke).Round(second))
	lab.Eventually(t, 2*minute, "the node is Ready and plegd is healthy", l.well)
}

func (l *lane) podStartsFailing() {
	t := l.T
	cni := filepath.Dir(l.containerd.CNIConfig)
	hang := filepath.Join(cni, "hang")
	l.write(hang, "", 0o644)
	l.write(filepath.Join(cni, "slow-cni"), fmt.Sprintf(cniPlugin, hang), 0o755)
	l.write(filepath.Join(cni, "loopback"), runtime.FakePlugin, 0o755)
	draft := l.containerd.CNIConfig + ".draft"
	l.write(draft, `{"cniVersion": "0.3.1", "name": "lab", "plugins": [{"type": "slow-cni"}]}`, 0o644)
	lab.Must(t, os.Rename(draft, l.containerd.CNIConfig))
	l.Sleep(second) // until it is read

	began := time.Now()
	for i := range netPods {
		l.writeJSON(fmt.Sprintf("manifests/net%d.json", i), map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": fmt.Sprintf("net%d", i), "namespace": "default"},
			"spec": map[string]any{
				"terminationGracePeriodSeconds": 0,
				"containers":                    []any{map[string]any{"name": "c", "image": runtime.PauseImage, "imagePullPolicy": "Never"}},
			},
		})
	}
	var named facts.Active
	lab.Eventually(t, 3*minute, "plegd names "+health.PodStartsFailing, func() error {
		s, err := l.status()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(s.Active, func(a facts.Active) bool { return a.ID == health.PodStartsFailing })
		if i < 0 {
			return fmt.Errorf("%s %s: %+v; kubelet: %+v", s.State, s.Reason, s.Active, s.Facts.Evidence.Kubelet)
		}
		named = s.Active[i]
		if !s.Facts.Status.RuntimeReady.Good() || s.Facts.Relist.Failures > 0 || !s.NodeReady {
			t.Errorf("reads suffer: %+v", s.Facts.Relist)
		}
		return nil
	})
	lab.Report(t, "PodStartsFailing: named %s after the pods came: %s", time.Since(began).Round(second), strings.Join(named.Evidence, "; "))
	// The step of the reason greps for these words.
	lab.Eventually(t, 2*minute, "a retry fails because the name is reserved, and the reason stands", func() error {
		s, err := l.status()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(s.Active, func(a facts.Active) bool { return a.ID == health.PodStartsFailing }) {
			return fmt.Errorf("%s %s: %+v", s.State, s.Reason, s.Active)
		}
		if !strings.Contains(lab.Tail(l.kubeletLog(), 5000), "is reserved for") {
			return errors.New("the kubelet's log does not hold: is reserved for")
		}
		return nil
	})

	lab.Must(t, os.Remove(hang))
	recovered := time.Now()
	lab.Eventually(t, 2*minute, "the pods run and plegd is healthy", func() error {
		s, err := l.status()
		if err != nil {
			return err
		}
		if s.State != facts.StateHealthy || s.Facts.Pods == nil || s.Facts.Pods.Running < staticPods+netPods {
			return fmt.Errorf("%s %s, %+v", s.State, s.Reason, s.Facts.Pods)
		}
		return nil
	})
	lab.Report(t, "PodStartsFailing: all pods run and plegd is healthy %s after the plugin was well", time.Since(recovered).Round(second))
}

func (l *lane) write(file, text string, mode os.FileMode) {
	l.Helper()
	lab.Must(l, os.WriteFile(file, []byte(text), mode))
}

// status is all that plegd says.
func (l *lane) status() (s facts.Snapshot, err error) {
	return s, lab.GetJSON(l.control, "http://plegd/api/v1/status", &s)
}
