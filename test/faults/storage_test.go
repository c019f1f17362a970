//go:build e2e

package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// storageFaults are those of the file systems that the runtime writes to. Lists are
// answered in all of them, and no pod can be started.
var storageFaults = []fault{
	storageFault("root full, tmpfs", "tmpfs", "free (tmpfs)", (*lab.FileSystem).Fill),
	storageFault("root full, ext4", "ext4", "free (ext4 on /dev/loop", (*lab.FileSystem).Fill),
	storageFault("root out of inodes, ext4", "ext4", "inodes free (ext4", (*lab.FileSystem).FillInodes),
	storageFault("root mounted read-only", "tmpfs", "read-only (tmpfs", (*lab.FileSystem).ReadOnly),
	{
		// Only another mount ends it, for which the runtime must let go of the old one.
		name: "root read-only after an error, ext4", on: containerdAlone, why: "made on containerd alone", want: health.RuntimeStorageFull, goal: 5 * time.Second,
		fresh: true, restarts: true,
		configure:    func(b *bench) { b.disk = b.SmallRoot("ext4") },
		evidence:     func(b *bench) string { return "root " + b.disk.Path() + ": read-only since an error" },
		onTheWayBack: []string{health.RuntimeNotListening, health.RuntimeSocketMissing, health.RuntimeStarting},
		inject: func(b *bench) func() {
			b.disk.Fail()
			b.cannotStart()
			return func() {
				b.Kill()
				b.disk.Replace()
				b.Start()
				b.ImportImage()
			}
		},
	},
	{
		name: "state full, tmpfs", on: containerdAlone, why: "made on containerd alone", want: health.RuntimeStorageFull, goal: 5 * time.Second,
		configure: func(b *bench) { b.disk = b.SmallState() },
		evidence:  func(b *bench) string { return "state " + b.disk.Path() + ": " },
		inject: func(b *bench) func() {
			undo := b.disk.Fill()
			b.cannotStart()
			return undo
		},
	},
}

// containerdAlone is where these faults are made.
var containerdAlone = []string{"containerd"}

func storageFault(name, kind, evidence string, make func(*lab.FileSystem) func()) fault {
	return fault{
		name: name, on: containerdAlone, why: "made on containerd alone", want: health.RuntimeStorageFull, goal: 5 * time.Second,
		configure: func(b *bench) { b.disk = b.SmallRoot(kind) },
		evidence:  func(*bench) string { return evidence },
		inject: func(b *bench) func() {
			undo := make(b.disk)
			b.cannotStart()
			return func() {
				undo()
				pod := b.cri.RunPod() // it is over
				b.t.Cleanup(pod.Discard)
			}
		},
	}
}

// cannotStart shows that lists are answered and no pod can be started.
func (b *bench) cannotStart() {
	b.t.Helper()
	b.injected = time.Now()
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	if pod, err := b.cri.TryRunPod(ctx); err == nil {
		pod.Discard()
		b.t.Errorf("a pod could be started on %s", b.disk.Path())
	}
	if states, err := b.cri.States(time.Second); err != nil || len(states) == 0 {
		b.t.Error(fmt.Errorf("the containers: %v, %w", states, err))
	}
}

// TestStorage makes the faults of the runtime's file systems.
func TestStorage(t *testing.T) {
	makeAll(t, storageFaults, len(matrix)+len(dockerMatrix)+len(shapes)+len(kernelFaults))
}
