//go:build e2e

package faults

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// TestLessPrivilege makes a shim that reads nothing for plegds that may see less of the node:
// the chain ends earlier and says why, and names nothing that is not so.
func TestLessPrivilege(t *testing.T) {
	needContainerd(t)
	b := newBench(t, &fault{options: lab.ContainerdOptions{OwnShim: true}})
	b.victim = b.pods[0].RunContainer("victim")
	for name, tt := range map[string]struct {
		options lab.PlegdOptions
		// mayName is true where the shim is visible.
		mayName bool
		// why must stand in the text that says why the chain ends.
		why string
	}{
		"without CAP_SYS_PTRACE": {lab.PlegdOptions{DropCapabilities: []string{"sys_ptrace"}}, true, "CAP_SYS_PTRACE"},
		// It hides nothing from the group 0.
		"ProtectProc=invisible":  {lab.PlegdOptions{DropCapabilities: []string{"sys_ptrace"}, Flags: []string{"--path.procfs=" + hidingProc(t, "invisible")}}, true, "CAP_SYS_PTRACE"},
		"ProtectProc=ptraceable": {lab.PlegdOptions{DropCapabilities: []string{"sys_ptrace"}, Flags: []string{"--path.procfs=" + hidingProc(t, "ptraceable")}}, false, "its shim or conmon is not among"},
		"a pod without hostPID":  {lab.PlegdOptions{Flags: []string{"--path.procfs=" + otherProc(t)}}, false, "its shim or conmon is not among"},
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			b.watch(&fault{plegd: tt.options})
			defer b.unwatch()
			read := b.StopReading(b.pods[0])
			end := b.holdList()
			shim := b.Shim(b.pods[0])
			var e explained
			var ended time.Duration // when the chain first said why it ends
			lab.Eventually(t, 20*time.Second, "the container is named, and the chain says why it ends", func() error {
				e = explain(t, b.plegd)
				for _, l := range e.Chain {
					if l.PID != 0 && (!tt.mayName || l.PID != shim) {
						t.Errorf("names pid %d, which it cannot know to wait: %s", l.PID, e)
					}
				}
				if !slices.Contains([]string{"", health.RuntimeListStall}, e.Reason) {
					t.Errorf("the reason: %s", e)
				}
				if strings.Contains(e.Next, "kill") {
					t.Errorf("ends what is not known to be stuck: %s", e.Next)
				}
				if ended == 0 && strings.Contains(e.ChainEnd, tt.why) {
					ended = time.Since(b.injected)
				}
				if ended == 0 || e.Reason != health.RuntimeListStall {
					return fmt.Errorf("%s", e)
				}
				return nil
			})
			took := time.Since(b.injected)
			t.Log(e)
			checkContainer(t, e)
			lab.Report(t, "%s, %s: the container after %.1f s, %s after %.1f s, the chain ends: %s", lab.RuntimeColumn(), name, ended.Seconds(), e.Reason, took.Seconds(), e.ChainEnd)
			read()
			end()
			b.plegd.AwaitState(30*time.Second, string(health.StateHealthy))
		})
	}
}

// hidingProc is a procfs as ProtectProc= makes it.
func hidingProc(t *testing.T, hide string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "proc")
	script := `mkdir "$0" && mount -t proc -o hidepid="$1" proc "$0"`
	return mountedProc(t, dir, exec.Command("sh", "-c", script, dir, hide))
}

// otherProc is the procfs of another pid namespace, as a pod has it.
func otherProc(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "proc")
	script := `mkdir "$0" && mount -t proc proc "$0"`
	return mountedProc(t, dir, exec.Command("unshare", "--pid", "--fork", "sh", "-c", script, dir))
}

func mountedProc(t *testing.T, dir string, mount *exec.Cmd) string {
	t.Helper()
	if out, err := mount.CombinedOutput(); err != nil {
		lab.Unable(t, fmt.Sprintf("no procfs can be mounted: %v: %s", err, out))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "--lazy", dir).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v: %s", dir, err, out)
		}
	})
	return dir
}
