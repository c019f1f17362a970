//go:build e2e

package faults

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// takeOvers lead the runtime's path to another process while the runtime lives.
var takeOvers = []fault{
	{
		name: "a second runtime takes the socket", on: []string{"containerd", "cri-dockerd"}, why: "it starts beside no other that answers",
		want: health.RuntimeSocketTakenOver, goal: 3 * time.Second,
		prepare: func(b *bench) {
			b.second = lab.NewContainerd(b.t, lab.ContainerdOptions{NotStarted: true})
			b.second.ListenAt(b.socket)
		},
		evidence: secondEvidence,
		inject: func(b *bench) func() {
			back := b.keepSocket()
			b.launchSecond()
			return func() {
				back()
				b.second.Kill()
			}
		},
	},
	{
		// EAGAIN looks to CRI-O like a socket that a dead one has left behind.
		name: "a second CRI-O takes a full accept queue for a stale socket", on: []string{"CRI-O"}, why: "its start looks at no accept queue",
		want: health.RuntimeSocketTakenOver, goal: 3 * time.Second,
		prepare: func(b *bench) {
			b.second = lab.NewContainerd(b.t, lab.ContainerdOptions{NotStarted: true})
			b.second.ListenAt(b.socket)
		},
		evidence: secondEvidence,
		// Before the second one has started.
		onTheWay: append([]string{health.AcceptFDExhausted, health.AcceptStalled}, noDescriptor...),
		inject: func(b *bench) func() {
			back := b.keepSocket()
			undo := b.LimitFiles(8)
			open := b.connect(10000)
			b.launchSecond()
			closeAll(open)
			undo()
			return func() {
				back()
				b.second.Kill()
			}
		},
	},
	{
		name: "symbolic link to another runtime's socket", want: health.RuntimeSocketTakenOver, goal: 3 * time.Second,
		prepare: secondRuntime, evidence: secondEvidence,
		inject: func(b *bench) func() {
			back := b.keepSocket()
			b.must(os.Symlink(b.second.Socket, b.socket+".draft"))
			b.must(os.Rename(b.socket+".draft", b.socket))
			return back
		},
	},
	{
		name: "bind mount of another runtime's socket", want: health.RuntimeSocketTakenOver, goal: 3 * time.Second,
		prepare: secondRuntime, evidence: secondEvidence,
		inject: func(b *bench) func() {
			b.must(syscall.Mount(b.second.Socket, b.socket, "", syscall.MS_BIND, ""))
			return func() { b.must(syscall.Unmount(b.socket, syscall.MNT_DETACH)) }
		},
	},
	impostorFault("an impostor that accepts and says nothing", lab.Silent, lab.PlegdOptions{}),
	impostorFault("an impostor that never accepts", lab.NeverAccepts, lab.PlegdOptions{}),
	// Without it no process can be found by its socket: a connection tells.
	impostorFault("an impostor that never accepts, plegd without CAP_SYS_PTRACE", lab.NeverAccepts, lab.PlegdOptions{DropCapabilities: []string{"sys_ptrace"}}),
	impostorFault("a web server takes the socket", lab.HTTPServer, lab.PlegdOptions{}),
}

func impostorFault(name string, kind lab.Impostor, options lab.PlegdOptions) fault {
	return fault{
		name: name, want: health.RuntimeSocketTakenOver, goal: 3 * time.Second, plegd: options,
		evidence: func(b *bench) string { return fmt.Sprintf("pid %d (", b.impostor) },
		inject: func(b *bench) func() {
			back := b.keepSocket()
			draft := b.socket + ".draft"
			pid, stop := kind.Start(b.t, draft)
			b.impostor, b.injected = pid, time.Now()
			b.must(os.Rename(draft, b.socket))
			return func() {
				back()
				stop()
			}
		},
	}
}

// launchSecond starts the second runtime, and returns when it has replaced the
// socket.
func (b *bench) launchSecond() {
	b.t.Helper()
	was := socketInode(b)
	b.second.Launch()
	lab.Eventually(b.t, 20*time.Second, "the second runtime has replaced the socket", func() error {
		if socketInode(b) == was {
			return fmt.Errorf("it is still inode %d", was)
		}
		return nil
	})
	b.injected = time.Now()
}

func secondRuntime(b *bench) { b.second = lab.NewContainerd(b.t, lab.ContainerdOptions{}) }

func secondEvidence(b *bench) string { return fmt.Sprintf("pid %d (", b.second.Pid()) }

// keepSocket keeps the socket's file by another name, and returns what puts it
// back in one step.
func (b *bench) keepSocket() (back func()) {
	b.t.Helper()
	kept := b.socket + ".kept"
	b.must(os.Link(b.socket, kept))
	return func() { b.must(os.Rename(kept, b.socket)) }
}

func socketInode(b *bench) uint64 {
	b.t.Helper()
	info, err := os.Stat(b.socket)
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// TestTakeOvers leads the path to another process, in each way.
func TestTakeOvers(t *testing.T) { makeAll(t, takeOvers, len(matrix)+len(shapes)) }

// TestTwoRuntimes: of two containerds side by side each is known by its own shims.
func TestTwoRuntimes(t *testing.T) {
	b := newBench(t, &fault{})
	b.watch(&fault{})
	second := lab.NewContainerd(t, lab.ContainerdOptions{})
	pods := second.CRI(t).RunPods(3, 1)
	pid := second.Shim(pods[0])
	b.must(syscall.Kill(pid, syscall.SIGSTOP))
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	lab.Throughout(t, 6*time.Second, "the other runtime's shims are none of this one's", func() error {
		s, err := b.plegd.Status()
		if err != nil {
			return err
		}
		if s.State != string(health.StateHealthy) {
			return fmt.Errorf("%s: %s", s.State, s.Reason)
		}
		return nil
	})
}
