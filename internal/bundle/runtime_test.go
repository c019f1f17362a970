package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/stacks"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// wants fails for each text that a file lacks.
func wants(t *testing.T, files map[string]string, name string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		check.Contains(t, files[name], text, "%s lacks", name)
	}
}

// TestRuntime: the lists are beside the shims, a shim whose sandbox is in no list shows, and
// what cannot be had is an error.
func TestRuntime(t *testing.T) {
	rt := fakeruntime.New(fakeruntime.Options{})
	rt.Start()
	t.Cleanup(rt.Stop)
	rt.FillPods(1, 1)
	sandboxes, containers := rt.Snapshot()
	root := t.TempDir()
	for pid, id := range map[int]string{20: sandboxes[0].GetId(), 21: "gone"} {
		evidencetest.WriteTree(t, root, map[string]string{
			fmt.Sprintf("%d/stat", pid):    evidencetest.StatLine(pid, "containerd-shim", 'S', 1, 100),
			fmt.Sprintf("%d/cmdline", pid): "containerd-shim\x00-id\x00" + id + "\x00",
		})
	}
	evidencetest.WriteTree(t, root, map[string]string{"30/stat": evidencetest.StatLine(30, "pause", 'T', 20, 100)})
	client := cri.New(cri.Options{Path: "/run/fake.sock", Dial: rt.Dialer()})
	t.Cleanup(func() { _ = client.Close() })
	files, err := gathered(t, Runtime(proc.NewTable(root), client, "/nowhere.sock"))
	if err == nil || !strings.Contains(err.Error(), "plugins (the runtime does not serve them)") || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a runtime that lists no plugins: %v", err)
	}
	wants(t, files, "runtime/pods.txt", "1 sandboxes, 1 containers", sandboxes[0].GetId(), containers[0].GetId(), containers[0].GetMetadata().GetName())
	wants(t, files, "runtime/shims.txt", "20 S", sandboxes[0].GetMetadata().GetName(), "30(pause T)", `gone "in no list"`)
}

// TestStuckThreads: threads in D of every process are listed, others are not.
func TestStuckThreads(t *testing.T) {
	root := t.TempDir()
	evidencetest.WriteTree(t, root, map[string]string{
		"10/stat":          evidencetest.StatLine(10, "main", 'S', 1, 100),
		"10/task/10/stat":  evidencetest.StatLine(10, "main", 'S', 1, 100),
		"10/task/11/stat":  evidencetest.StatLine(11, "worker", 'D', 1, 100),
		"10/task/11/wchan": "rpc_wait_bit_killable", "10/task/11/stack": "[<0>] nfs_wait",
	})
	files, err := gathered(t, StuckThreads(proc.NewTable(root)))
	must.Do(t, err)
	wants(t, files, "node/threads-in-D.txt", "pid 10 (main), thread 11 (worker)", "rpc_wait_bit_killable", "nfs_wait")
	if strings.Contains(files["node/threads-in-D.txt"], "thread 10 ") {
		t.Error("a thread that sleeps is listed")
	}
}

// TestUsage: the process with most inotify instances is first, and each mount namespace has
// one line.
func TestUsage(t *testing.T) {
	root := t.TempDir()
	for pid, instances := range map[int]int{10: 1, 11: 3} {
		evidencetest.WriteTree(t, root, map[string]string{
			fmt.Sprintf("%d/stat", pid):      evidencetest.StatLine(pid, "watcher", 'S', 1, 100),
			fmt.Sprintf("%d/mountinfo", pid): "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n",
		})
		must.Do(t, link(root, pid, "ns/mnt", "mnt:[1]"))
		for fd := range instances {
			must.Do(t, link(root, pid, fmt.Sprintf("fd/%d", fd), inotifyLink))
		}
	}
	files, err := gathered(t, Usage(proc.NewTable(root)))
	must.Do(t, err)
	wants(t, files, "node/inotify.txt", "3 pid 11 (watcher)\n        1 pid 10")
	wants(t, files, "node/mounts-by-namespace.txt", "     1         2 pid 10 (watcher), mnt:[1]")
}

// link makes a link of a process.
func link(root string, pid int, name, target string) error {
	path := proc.Path(root, pid, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.Symlink(target, path)
}

// TestStacksMissing: a runtime without a dump is listed with the reason.
func TestStacksMissing(t *testing.T) {
	files, err := gathered(t, Stacks(proc.NewTable(t.TempDir()), []stacks.Target{{PID: 812}}))
	if err == nil || !strings.Contains(err.Error(), "812") || len(files) > 0 {
		t.Errorf("%v, %d files", err, len(files))
	}
}
