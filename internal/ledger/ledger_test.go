package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// process is one of a made-up node: flags are those of its stat, pending its SigPnd.
type process struct {
	pid, parent int
	comm        string
	state       byte
	exiting     bool
	pending     string
	uid         int
	arguments   []string
}

const socket = "/run/containerd/containerd.sock"

// shimOf are the arguments of a shim of the runtime at a socket.
func shimOf(socket string) []string {
	return []string{"/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-id", "abc", "-address", socket}
}

// node writes a /proc with a runtime, pid 10, a shim, pid 20, and processes of its container.
func node(t *testing.T, processes []process) string {
	t.Helper()
	root := t.TempDir()
	all := append([]process{
		{pid: 1, comm: "systemd", state: 'S'},
		{pid: 10, parent: 1, comm: "containerd", state: 'S'},
		{pid: 20, parent: 1, comm: "containerd-shim", state: 'S', arguments: shimOf(socket)},
	}, processes...)
	for _, p := range all {
		line := evidencetest.StatLine(p.pid, p.comm, p.state, p.parent, 100)
		if p.exiting {
			before, after, _ := strings.Cut(line, ") ")
			fields := strings.Fields(after)
			fields[6] = "4"
			line = before + ") " + strings.Join(fields, " ") + "\n"
		}
		evidencetest.WriteTree(t, root, map[string]string{
			fmt.Sprintf("%d/stat", p.pid):                     line,
			fmt.Sprintf("%d/status", p.pid):                   fmt.Sprintf("Uid:\t%d\t0\t0\t0\nNSpid:\t7\n", p.uid) + "SigPnd:\t" + p.pending + "\nShdPnd:\t0000000000000000\n",
			fmt.Sprintf("%d/cgroup", p.pid):                   "0::/\n",
			fmt.Sprintf("%d/task/%d/stat", p.pid, p.pid):      line,
			fmt.Sprintf("%d/task/%d/schedstat", p.pid, p.pid): "1 1 1\n",
			fmt.Sprintf("%d/task/%d/syscall", p.pid, p.pid):   "202 0x1 0x0 0x0 0x0 0x0 0x0 0x1 0x1\n",
			fmt.Sprintf("%d/task/%d/wchan", p.pid, p.pid):     "rpc_wait_bit_killable",
			fmt.Sprintf("%d/fd/.keep", p.pid):                 "",
			fmt.Sprintf("%d/cmdline", p.pid):                  strings.Join(p.arguments, "\x00") + "\x00",
		})
	}
	return root
}

// TestKilled: a killed process that does not end is found after 10 s, with the member of its PID
// namespace for which it waits; a process in D that was not killed, and one of no container, is not.
func TestKilled(t *testing.T) {
	const kill, none = "0000000000000100", "0000000000000000"
	for _, tt := range []struct {
		name      string
		processes []process
		later     time.Duration
		culprit   int // 0: nothing is found
	}{
		{"in D with a SIGKILL", []process{{pid: 30, parent: 20, comm: "app", state: 'D', pending: kill}}, 11 * time.Second, 30},
		{"in D", []process{{pid: 30, parent: 20, comm: "app", state: 'D', pending: none}}, time.Hour, 0},
		{"its namespace has a member in D", []process{
			{pid: 30, parent: 20, comm: "app", state: 'S', exiting: true, pending: none},
			{pid: 31, parent: 30, comm: "worker", state: 'S', pending: none},
			{pid: 32, parent: 31, comm: "worker", state: 'D', pending: kill},
		}, 11 * time.Second, 32},
		{"it ends in time", []process{{pid: 30, parent: 20, comm: "app", state: 'S', exiting: true, pending: none}}, 9 * time.Second, 0},
		{"another user's shim", []process{
			{pid: 20, parent: 1, comm: "containerd-shim", state: 'S', uid: 1000, arguments: shimOf(socket)},
			{pid: 30, parent: 20, comm: "app", state: 'D', pending: kill},
		}, time.Hour, 0},
		{"another containerd's shim", []process{
			{pid: 20, parent: 1, comm: "containerd-shim", state: 'S', arguments: shimOf("/run/k3s/containerd/containerd.sock")},
			{pid: 30, parent: 20, comm: "app", state: 'D', pending: kill},
		}, time.Hour, 0},
		{"the shim of dockerd on the same containerd", []process{
			{pid: 20, parent: 1, comm: "containerd-shim", state: 'S', arguments: append(shimOf(socket), "-namespace", "moby")},
			{pid: 30, parent: 20, comm: "app", state: 'D', pending: kill},
		}, time.Hour, 0},
		{"somebody else's", []process{{pid: 30, parent: 1, comm: "app", state: 'D', pending: kill}}, time.Hour, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := time.Now()
			l := New(Options{
				Table: proc.NewTable(node(t, tt.processes)), SysFS: t.TempDir(), PIDs: func() []int { return []int{10, 0} },
				Sockets: func() []string { return []string{socket} },
				Clock:   func() time.Time { return now },
			})
			l.Pass(t.Context())
			now = now.Add(tt.later)
			found := l.Pass(t.Context()).Findings
			culprit := 0
			for _, f := range found {
				if f.Reason == shimStuck && f.Chain.Links[0].PID == 20 {
					culprit = f.Chain.Links[1].PID
				}
			}
			check.Equal(t, culprit, tt.culprit, "culprit: %+v", found)
		})
	}
}

// TestUnread: what a pass cannot read is said, as something owed may hide there, and no longer by a
// pass that reads it.
func TestUnread(t *testing.T) {
	dying := process{pid: 30, parent: 20, comm: "app", state: 'D', pending: "0000000000000100"}
	for _, tt := range []struct{ path, part string }{
		{path: "10/fd", part: descriptorsOfRuntime},
		{path: "20/status", part: identitiesOfShims},
		{path: "20/cmdline", part: identitiesOfShims},
		{path: "30/status", part: pendingSignals},
	} {
		t.Run(tt.path, func(t *testing.T) {
			root := node(t, []process{dying})
			now := time.Now()
			l := New(Options{
				Table: proc.NewTable(root), SysFS: t.TempDir(), PIDs: func() []int { return []int{10} },
				Sockets: func() []string { return []string{socket} },
				Clock:   func() time.Time { return now },
			})
			path := filepath.Join(root, tt.path)
			must.Do(t, os.Rename(path, path+".kept"))
			must.Do(t, os.Symlink(filepath.Base(path), path)) // a loop cannot be read, by root either
			unread := l.Pass(t.Context()).Unread
			_, said := unread[tt.part]
			check.Equal(t, said, true, "%q is said: %v", tt.part, unread)
			now = now.Add(idleLimit) // the descriptors are due, the process table is not
			unread = l.Pass(t.Context()).Unread
			_, said = unread[tt.part]
			check.Equal(t, said, true, "%q is said again: %v", tt.part, unread)
			must.Do(t, os.Remove(path))
			must.Do(t, os.Rename(path+".kept", path))
			now = now.Add(time.Hour)
			l.Table = proc.NewTable(root) // the process table is read by the system's clock
			l.members = family.NewMembers(l.Table)
			_, said = l.Pass(t.Context()).Unread[tt.part]
			check.Equal(t, said, false, "%q is said once it can be read", tt.part)
		})
	}
}

// BenchmarkPass is the cost of a pass while nothing is owed, with this process as the runtime.
func BenchmarkPass(b *testing.B) {
	l := New(Options{
		Table: proc.NewTable("/proc"), SysFS: "/sys", PIDs: func() []int { return []int{os.Getpid()} }, Sockets: func() []string { return nil },
	})
	for b.Loop() {
		l.Pass(b.Context())
	}
}
