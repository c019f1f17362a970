//go:build e2e

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// kernelFaults are those in which the kernel makes the runtime wait: for memory,
// a CPU, a disk, a mount, a file lock.
var kernelFaults = []fault{
	givingUp(fault{
		name: "memory limit, out of memory", fresh: true, on: []string{"containerd 1.", "CRI-O"}, why: "accept(2) fails for want of memory, and it exits: rightly RuntimeSocketMissing", want: health.RuntimeMemoryLimited, goal: 5 * time.Second, limit: 20 * time.Second,
		prepare: func(b *bench) { b.group = lab.NewControlGroup(b.t, "memory", b.Pid()) },
		// While connections are made, the runtime has yet to come to its limit.
		onTheWayBack: []string{health.RelistSlow, health.AcceptStalled, health.RuntimeUnresponsive},
		backLimit:    20 * time.Second,
		inject: func(b *bench) func() {
			lift := b.group.LimitMemory(1 << 20)
			open := b.connect(1000) // each costs the runtime some kilobytes
			return func() {
				lift()
				closeAll(open)
			}
		},
	}),
	{
		name: "CPU shares of 2 beside hogs", want: health.RuntimeStarved, goal: 5 * time.Second, limit: 30 * time.Second,
		prepare: func(b *bench) {
			lab.Two(300, func(int) { b.pods[0].CreateHeavyContainer(1000) })
			b.group = lab.NewControlGroup(b.t, "cpu", b.Pid())
		},
		// Until the first wait has been seen.
		onTheWay:     []string{health.NodePressure, health.RelistSlow, health.RuntimeUnresponsive, health.RuntimeListStall},
		onTheWayBack: []string{health.RelistSlow, health.AcceptStalled},
		backLimit:    20 * time.Second,
		inject: func(b *bench) func() {
			b.group.Shares(2)
			end := hogs(b.t, 4*runtime.NumCPU())
			return func() {
				end()
				b.group.Shares(0)
			}
		},
	},
	{
		// Lists are answered, and no pod can start.
		name: "file system below the runtime's root frozen", want: health.RuntimeStorageStall, goal: 13 * time.Second, limit: 25 * time.Second,
		configure: func(b *bench) { b.disk = b.RootOnDisk() },
		evidence:  func(*bench) string { return "in D for" },
		inject: func(b *bench) func() {
			thaw := b.disk.Freeze()
			done := inBackground(func(ctx context.Context) { _ = b.cri.RunPodInNetwork(ctx) })
			return func() {
				thaw()
				<-done
			}
		},
	},
	{
		name: "FUSE server does not answer", want: health.RuntimeStorageStall, goal: 13 * time.Second, limit: 25 * time.Second,
		evidence: func(*bench) string { return "fuse" },
		explained: func(b *bench) string {
			return b.awaitExplained(func(e explained) bool {
				mount := slices.ContainsFunc(e.Chain, func(l health.Link) bool { return l.Kind == health.KindMount && strings.Contains(l.Name, "/fuse-") })
				return mount && e.Culprit.Kind == health.KindProcess
			})
		},
		inject: func(b *bench) func() {
			dir := filepath.Join(filepath.Dir(b.socket), fmt.Sprintf("fuse-%d", time.Now().UnixNano()))
			b.must(os.Mkdir(dir, 0o755))
			end := b.DeadFUSE(dir)
			done := inBackground(func(ctx context.Context) {
				if err := b.pods[0].TryContainer(ctx, &runtimeapi.Mount{HostPath: filepath.Join(dir, "volume"), ContainerPath: "/volume"}); err != nil {
					b.t.Logf("the container: %v", err)
				}
			})
			return func() {
				end()
				<-done
			}
		},
	},
	{
		name: "CRI-O waits for a storage lock while it runs", want: health.RuntimeStorageLocked, goal: 13 * time.Second, limit: 25 * time.Second,
		start:    crio(0),
		evidence: func(b *bench) string { return fmt.Sprintf("held by pid %d", os.Getpid()) },
		inject: func(b *bench) func() {
			release := b.crio.HoldLock()
			b.must(os.WriteFile(b.crio.Locking, nil, 0o600))
			return func() {
				b.must(os.Remove(b.crio.Locking))
				release()
			}
		},
	},
}

// TestKernel makes the faults in which the kernel makes the runtime wait.
func TestKernel(t *testing.T) { makeAll(t, kernelFaults, len(matrix)+len(shapes)) }

// inBackground makes a call that hangs, and returns a channel that is closed when
// it has ended.
func inBackground(call func(context.Context)) chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		call(ctx)
	}()
	return done
}

// hogs keeps the machine's CPUs busy until the end.
func hogs(t *testing.T, n int) (end func()) {
	t.Helper()
	var ends []func()
	for range n {
		_, end := startHog(t)
		ends = append(ends, end)
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

func startHog(t *testing.T) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(end)
	return cmd.Process.Pid, end
}

// givingUp returns a fault in which the server of the runtime may end by the first
// accept(2) that fails: its socket is then gone, CRI-O's while its process, and what it
// holds, remain, and only a restart brings it back.
func givingUp(f fault) fault {
	out := f
	out.onTheWay = append([]string{health.RuntimeSocketUnlinked, health.RuntimeSocketMissing}, f.onTheWay...)
	out.onTheWayBack = slices.Concat([]string{health.RuntimeSocketUnlinked, health.RuntimeSocketMissing, health.RuntimeNotListening, health.RuntimeStarting}, f.onTheWayBack)
	out.back, out.backLimit = 30*time.Second, 30*time.Second
	out.inject = func(b *bench) func() {
		lift := f.inject(b)
		return func() {
			lift()
			gone := false
			lab.Eventually(b.t, 10*time.Second, "the runtime accepts a connection, or its socket is gone", func() error {
				if _, err := os.Stat(b.socket); errors.Is(err, os.ErrNotExist) {
					gone = true
					return nil
				}
				return lab.VersionAnswers(b.socket)
			})
			if gone {
				b.t.Log("its socket is gone: it is restarted")
				b.Restart()
			}
		}
	}
	return out
}
