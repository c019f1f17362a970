//go:build e2e

package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// slowFaults are those that hang no call that plegd makes: starts of pods are slow, or do not end.
var slowFaults = []fault{
	{
		// Each plugin gives up after 5 s, as a look-up of a name does, and makes the network then.
		name: "each start waits 5 s for a stopped process", want: health.RuntimeHelperStuck, on: onContainerd, goal: time.Minute, limit: 90 * time.Second, back: time.Minute,
		configure: func(b *bench) { b.installPlugin(`timeout 5 cat "$0.fifo"; ` + makesNetwork) },
		prepare:   (*bench).serveKubeletMetrics,
		make: func(b *bench) func() {
			fifo := b.file("cni", "slow-cni.fifo")
			b.must(syscall.Mkfifo(fifo, 0o600))
			holder := exec.Command("sh", "-c", `exec 3<>"$0"; kill -STOP $$`, fifo)
			lab.StartCommand(b.t, holder)
			b.other = holder.Process.Pid
			b.awaitStopped()
			end := again(b.startSlowPod)
			return inTurn(func() { b.must(syscall.Kill(b.other, syscall.SIGKILL)) }, end)
		},
		culprit: theOther, next: continueOther,
	},
	{
		name: "each start keeps a CPU busy for 3 s", want: health.RuntimeHelperStuck, on: onContainerd, goal: time.Minute, limit: 90 * time.Second, back: time.Minute,
		configure: func(b *bench) {
			b.installPlugin(`[ ! -e "$0.busy" ] || timeout 3 sh -c "while :; do :; done"; ` + makesNetwork)
		},
		prepare: (*bench).serveKubeletMetrics,
		make: func(b *bench) func() {
			b.must(os.WriteFile(b.file("cni", "slow-cni.busy"), nil, 0o644))
			end := again(b.startSlowPod)
			return inTurn(func() { b.must(os.Remove(b.file("cni", "slow-cni.busy"))) }, end)
		},
		culprit: func(*bench) facts.Link {
			return facts.Link{Kind: facts.KindHelper, Name: "slow-cni", State: facts.LinkRunning}
		},
		next: constant("See what keeps"),
	},
	{
		// As snapshots of a backup do. No list waits.
		name: "the disk of the runtime's root is frozen for 4 of every 7 s", on: onContainerd, want: health.RuntimeStorageStall,
		goal: 75 * time.Second, limit: 2 * time.Minute, back: time.Minute,
		configure: func(b *bench) { b.disk = b.RootOnDisk() },
		make: func(b *bench) func() {
			ctx, cancel := context.WithCancel(context.Background())
			frozen := inBackground(func() {
				for ctx.Err() == nil {
					thaw := b.disk.Freeze()
					pause(ctx, 4*time.Second)
					thaw()
					pause(ctx, 3*time.Second)
				}
			})
			end := again(b.startHostPod)
			return inTurn(cancel, frozen, end)
		},
	},
	{
		// The kernel breaks it after 45 s. A thread that waits for it runs in each tick.
		name: "a file that the runtime opens at each start has a stopped process's lease", on: onContainerd, want: health.RuntimeStorageLocked,
		goal: 25 * time.Second, limit: 40 * time.Second, fresh: true, onTheWay: []string{health.PodStartsFailing},
		configure: func(b *bench) {
			b.must(os.WriteFile(b.file("hosts"), []byte("127.0.0.1 localhost\n"), 0o644))
			b.must(exec.Command("nsenter", "--mount", "--target", fmt.Sprint(b.Namespace.Pid()), "mount", "--bind", b.file("hosts"), "/etc/hosts").Run())
		},
		make: func(b *bench) func() {
			// F_SETLEASE of linux/fcntl.h; perl opens with write access, so that a reader breaks the lease.
			script := `open(F, "+<", $ARGV[0]) and syscall(72, fileno(F), 1024, 1) == 0 or die; $SIG{IO} = "IGNORE"; kill STOP => $$`
			holder := exec.Command("perl", "-e", script, b.file("hosts"))
			lab.StartCommand(b.t, holder)
			b.other = holder.Process.Pid
			b.awaitStopped()
			wait := b.startHostPod()
			return inTurn(func() { b.must(syscall.Kill(b.other, syscall.SIGKILL)) }, wait)
		},
		evidence: func(b *bench) string { return b.file("hosts") },
		culprit:  theOther, next: continueOther,
	},
	{
		// Its metrics count a call when it has ended.
		name: "a snapshotter waits for a lock, and no call of the kubelet's has ended", on: onContainerd, want: health.PodStartsFailing,
		goal: 25 * time.Second, limit: 40 * time.Second, fresh: true, back: 25 * time.Second, // until the metrics are read again
		prepare: func(b *bench) {
			b.startLockedSnapshots()
			b.serveKubeletMetrics()
		},
		make:    func(b *bench) func() { return b.lockSnapshots(b.kubeletWaits.Store) },
		culprit: theOther, next: pidOfOther,
	},
}

// startSlowPod starts a pod with a network, which the metrics of the kubelet show, and returns what waits until it is removed again.
func (b *bench) startSlowPod() (wait func()) {
	return inBackground(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		began := time.Now()
		pod, err := b.cri.TryPodInNetwork(ctx)
		b.kubeletTime.Store(int64(time.Since(began)))
		if err == nil {
			pod.Discard()
		}
	})
}

// again starts a pod again and again, and returns what ends that.
func again(start func() (wait func())) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := inBackground(func() {
		for ctx.Err() == nil {
			start()()
			pause(ctx, time.Second)
		}
	})
	return inTurn(cancel, ended)
}

// pause waits for a time, at most until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-limited.Done()
}

// awaitStopped waits until the other process is stopped.
func (b *bench) awaitStopped() {
	b.t.Helper()
	lab.Eventually(b.t, 10*time.Second, "the other process is stopped", func() error {
		state := lab.State(b.other)
		if !strings.HasPrefix(state, "T") {
			return fmt.Errorf("it is in %s", state)
		}
		return nil
	})
}

// continueOther is the step for another process that is stopped.
func continueOther(b *bench) string { return fmt.Sprintf("`kill -CONT %d`", b.other) }
