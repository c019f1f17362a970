//go:build e2e

package faults

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

const (
	sweptContainers = 500
	// sweepLeaves is how many calls of a sweep may stay in the runtime.
	sweepLeaves = 3
)

// TestSweep: among 500 containers one holds the lock of the list, and nothing on the
// node points at it: plegd asks for each. Few calls stay in the runtime, none after the
// fault.
func TestSweep(t *testing.T) {
	needContainerd(t)
	f := *faultNamed(t, "a shim that reads nothing holds up the list")
	b := newBench(t, &f)
	lab.Two(sweptContainers, func(i int) { b.pods[i%len(b.pods)].CreateContainer("beside") })
	b.watch(&f)
	f.limit = 40 * time.Second
	undo := f.make(b)
	var e explained
	took := lab.Eventually(t, f.limit, "the shim is named", func() error {
		if e = explain(t, b.plegd); f.explained(b, &e) != "" {
			return fmt.Errorf("%s", e)
		}
		return nil
	})
	checkContainer(t, e)
	left := b.callsInside()
	undo()
	b.plegd.AwaitState(30*time.Second, string(health.StateHealthy))
	after := b.callsInside()
	lab.Report(t, "%s, the sweep over %d containers: named after %.1f s; %d calls stayed in the runtime during the fault, %d after it",
		lab.RuntimeColumn(), sweptContainers, took.Seconds(), left, after)
	if left > sweepLeaves || after > 0 {
		t.Errorf("%d calls stayed in the runtime during the fault and %d after it, want at most %d and 0", left, after, sweepLeaves)
	}
}

// callsInside is how many ContainerStatus containerd is at work on: SIGUSR1 makes it
// write its goroutines to its log.
func (b *bench) callsInside() (n int) {
	b.t.Helper()
	before, err := os.ReadFile(b.Log)
	b.must(err)
	b.must(syscall.Kill(b.Pid(), syscall.SIGUSR1))
	var dump string
	lab.Eventually(b.t, 20*time.Second, "containerd has written its goroutines", func() error {
		text, err := os.ReadFile(b.Log)
		if err != nil {
			return err
		}
		if dump = string(text[len(before):]); !strings.Contains(dump, "=== END goroutine stack dump ===") {
			return fmt.Errorf("%d bytes so far", len(dump))
		}
		return nil
	})
	return strings.Count(dump, "(*criService).ContainerStatus(")
}
