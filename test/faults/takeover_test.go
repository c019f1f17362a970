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
		name: "a second containerd takes the socket", want: health.RuntimeSocketTakenOver, goal: 3 * time.Second,
		prepare: func(b *bench) {
			b.second = lab.NewContainerd(b.t, lab.ContainerdOptions{NotStarted: true})
			b.second.ReplaceInConfig(b.second.Socket, b.socket)
			b.second.Socket = b.socket
		},
		evidence: secondEvidence,
		inject: func(b *bench) func() {
			back := b.keepSocket()
			was := socketInode(b)
			b.second.Launch()
			lab.Eventually(b.t, 20*time.Second, "the second containerd has replaced the socket", func() error {
				if socketInode(b) == was {
					return fmt.Errorf("it is still inode %d", was)
				}
				return nil
			})
			b.injected = time.Now()
			return func() {
				back()
				b.second.Kill()
			}
		},
	},
	{
		name: "symbolic link to another containerd's socket", want: health.RuntimeSocketTakenOver, goal: 3 * time.Second,
		prepare: secondRuntime, evidence: secondEvidence,
		inject: func(b *bench) func() {
			back := b.keepSocket()
			b.must(os.Symlink(b.second.Socket, b.socket+".draft"))
			b.must(os.Rename(b.socket+".draft", b.socket))
			return back
		},
	},
	{
		name: "bind mount of another containerd's socket", want: health.RuntimeSocketTakenOver, goal: 3 * time.Second,
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

// TestTwoRuntimes: of two containerds side by side each is told by its own shims.
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
