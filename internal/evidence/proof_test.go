package evidence

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestShimProof: a stopped process that only has the name and the arguments of a shim is none, nor
// is one with a helper's name a helper.
func TestShimProof(t *testing.T) {
	for name, tt := range map[string]struct {
		status string
		stuck  int
	}{
		"a shim":                   {"Uid:\t0\t0\t0\t0\nNSpid:\t201\n", 1},
		"another user's orphan":    {"Uid:\t1000\t1000\t1000\t1000\nNSpid:\t201\n", 0},
		"a set-user-ID program":    {"Uid:\t1000\t0\t0\t0\nNSpid:\t201\n", 0},
		"in a pid namespace":       {"Uid:\t0\t0\t0\t0\nNSpid:\t201\t1\n", 0},
		"of a user that is hidden": {"", 0},
	} {
		root := t.TempDir()
		process(t, root, 1, 0, "systemd", 'S')
		process(t, root, 100, 1, "containerd", 'S')
		process(t, root, 201, 1, "containerd-shim", 'T', "/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-id", "0a1b", "-address", "/run/x.sock")
		process(t, root, 202, 100, "runc", 'S', "runc", "create", "id")
		evidencetest.WriteTree(t, root, map[string]string{"201/status": tt.status, "202/status": tt.status})
		w := childrenOf(root, t.TempDir(), 100)
		if v := gatherChildren(t, w); len(v.Stuck) != tt.stuck || v.Shims != tt.stuck || len(v.Old) != tt.stuck {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestPeerIsReused: the number of a process that has ended is not believed, even if another process has it now.
func TestPeerIsReused(t *testing.T) {
	dialed := time.Now().Add(-time.Minute)
	for name, tt := range map[string]struct {
		age  time.Duration
		want bool
	}{"the runtime": {time.Hour, true}, "started before": {time.Minute + 20*time.Second, true}, "a later process": {30 * time.Second, false}} {
		root := t.TempDir()
		started := uint64((time.Hour * 2) / time.Second * proc.ClockTicks)
		process(t, root, 1, 0, "systemd", 'S')
		line := evidencetest.StatLine(100, "bash", 'S', 1, started)
		evidencetest.WriteTree(t, root, map[string]string{"100/stat": line, "100/task/100/stat": line})
		p := processOf(root, func() int { return 100 })
		p.hop.dialed = func() *cri.DialResult { return &cri.DialResult{PeerPID: 100, At: dialed} }
		p.up = func() time.Duration { return 2*time.Hour + tt.age }
		v, err := p.gather(t.Context())
		check.Equal(t, err == nil && v.PID == 100, tt.want, "%s: %+v, %v", name, v, err)
	}
}

// TestProgram: the runtime's program is what its user and executable prove, and again after an execve.
func TestProgram(t *testing.T) {
	root := t.TempDir()
	process(t, root, 1, 0, "systemd", 'S')
	process(t, root, 1000, 1, "containerd", 'S')
	p := processIn(root, 1000)
	for _, tt := range []struct{ comm, exe, status, want string }{
		{"containerd", "/usr/bin/containerd (deleted)", evidencetest.RootStatus, "containerd"},
		{"wrapper", "/usr/bin/bash", evidencetest.RootStatus, ""},
		{"crio", "/usr/bin/crio", evidencetest.RootStatus, "crio"},
		{"dockerd", "/usr/bin/dockerd", "Uid:\t1000\t1000\t1000\t1000\nNSpid:\t1000\n", ""},
	} {
		must.Do(t, os.RemoveAll(root+"/1000/exe"))
		must.Do(t, os.Symlink(tt.exe, root+"/1000/exe"))
		line := evidencetest.StatLine(1000, tt.comm, 'S', 1, 9)
		evidencetest.WriteTree(t, root, map[string]string{"1000/stat": line, "1000/task/1000/stat": line, "1000/status": tt.status})
		for range 2 {
			check.Equal(t, gatherProcess(t, p).Program, tt.want, "%s, %s", tt.comm, tt.exe)
		}
	}
}

// TestLocksInCalm: a lock that a process waits for is found with and without a call that is late, from when its thread sleeps
// where one does, and not of a stopped process.
func TestLocksInCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := evidencetest.CopyTree(t, "testdata/proc")
		p := processIn(root, 1000)
		p.hop.calm = func() bool { return true }
		if v := gatherProcess(t, p); v.Lock != nil {
			t.Errorf("without a lock: %+v", v.Lock)
		}
		evidencetest.WriteTree(t, root, map[string]string{"locks": evidencetest.Locks})
		if v := gatherProcess(t, p); v.Lock == nil || !v.Lock.Since.Equal(v.At) {
			t.Errorf("in calm: %+v", v.Lock)
		}
		evidencetest.WriteTree(t, root, map[string]string{"locks": ""})
		if v := gatherProcess(t, p); v.Lock != nil {
			t.Errorf("it has the lock: %+v", v.Lock)
		}
		evidencetest.WriteTree(t, root, map[string]string{"1000/task/1001/wchan": "fcntl_setlk", "1000/task/1001/schedstat": "9 9 3"})
		slept := gatherProcess(t, p).At
		evidencetest.WriteTree(t, root, map[string]string{"locks": evidencetest.Locks})
		time.Sleep(stuckAfter)
		if v := gatherProcess(t, p); v.Lock == nil || !v.Lock.Since.Equal(slept) {
			t.Errorf("while a thread sleeps in fcntl(2): %+v", v.Lock)
		}
		stats, err := filepath.Glob(root + "/1000/task/*/stat")
		must.Do(t, err)
		for _, stat := range stats {
			b, err := os.ReadFile(stat)
			must.Do(t, err)
			b[bytes.LastIndexByte(b, ')')+2] = 'T'
			must.Do(t, os.WriteFile(stat, b, 0o600))
		}
		if v := gatherProcess(t, p); !v.Stopped() || v.Lock != nil {
			t.Errorf("stopped %t: %+v", v.Stopped(), v.Lock)
		}
	})
}

// unreadBy samples a source and returns the parts that could not be read.
func unreadBy[T any](t *testing.T, w *Watch[T]) map[string]string {
	t.Helper()
	w.sample(t.Context(), func() {})
	source, _ := w.report(&facts.Evidence{})
	return source.Unread
}

// TestUnread: what a source needs and cannot read is in its state, and only while that is so.
func TestUnread(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	mounts := strings.Repeat("30 1 254:0 / /root rw - ext4 /dev/vda rw\n", 50_001)
	evidencetest.WriteTree(t, root, map[string]string{"1000/mountinfo": mounts})
	s := &storage{procfs: root, sysfs: t.TempDir(), table: proc.NewTable(root), pids: func() []int { return []int{1000} }, isCalm: never}
	synctest.Test(t, func(t *testing.T) {
		w := newStorage(s)
		for i, want := range []string{"map[mount table:larger than 50000 lines]", "map[]"} {
			w.sample(t.Context(), func() {})
			source, ok := w.report(&facts.Evidence{})
			if got := fmt.Sprint(source.Unread); got != want || ok != (i == 0) || !source.Up {
				t.Errorf("%d: %s, %+v", i, got, source)
			}
			evidencetest.WriteTree(t, root, map[string]string{"1000/mountinfo": ""})
			time.Sleep(storageInterval)
		}
	})
	sysfs := evidencetest.CopyTree(t, "testdata/cgroup_v2")
	must.Do(t, os.RemoveAll(filepath.Join(sysfs, "fs/cgroup", runtimeCgroup, "cpu.stat")))
	evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup" + runtimeCgroup + "/cpu.stat/directory": ""})
	unlimited := cgroupOf(t, sysfs, v2Cgroups)
	check.Equal(t, len(unreadBy(t, unlimited)["cpu files"]) > 0, true, "a quota that cannot be read")
	must.Do(t, os.RemoveAll(filepath.Join(root, "pressure/io")))
	evidencetest.WriteTree(t, root, map[string]string{"pressure/io/directory": ""})
	check.Equal(t, len(unreadBy(t, newNode(root))["pressure/io"]) > 0, true, "a pressure that cannot be read")
	status := filepath.Join(root, "3000/status")
	must.Do(t, os.RemoveAll(status))
	must.Do(t, os.Symlink("status", status)) // a loop cannot be read
	children := childrenOf(root, t.TempDir(), 1000)
	for i := range 2 { // the second sample does not search for shims again
		_, err := children.gather(t.Context())
		must.Do(t, err)
		said := len(children.unread.Drain()["identities of shims"]) > 0
		check.Equal(t, said, true, "sample %d says that the user of a shim cannot be read", i)
	}
	u := proc.Unread{}
	u.Add("a", fs.ErrPermission)
	u.Add("b", fs.ErrNotExist)
	u.Add("c", nil)
	if got := fmt.Sprint(u.Drain(), u); got != "map[a:denied] map[]" {
		t.Error(got)
	}
}
