//go:build e2e

package faults

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

const (
	sweptContainers = 500
	// sweepLimit is how soon the last of them must be found: 2.5 s at 200 calls a second,
	// after the hang has been recognized.
	sweepLimit = 10 * time.Second
	// What plegd may use during a fault beyond what it uses without one.
	maxFaultCPU = 0.02 // of one
	maxFaultFDs = 30
	// sweepLeaves is how many calls of a sweep may stay in the runtime.
	sweepLeaves = 3
)

// TestCaseBookSweep: among 500 containers one holds the lock of the list, the oldest,
// and nothing on the node points at it: each is asked for. Few calls stay behind in
// the runtime, none after the fault, and plegd itself uses little meanwhile.
func TestCaseBookSweep(t *testing.T) {
	needContainerd(t)
	needCase(t, "sweep")
	b := newBench(t, &fault{options: lab.ContainerdOptions{OwnShim: true}})
	b.victim = b.pods[0].RunContainer("victim")
	lab.Two(sweptContainers, func(i int) { b.pods[i%len(b.pods)].CreateContainer("beside") })
	b.watch(&fault{})
	healthy := usageOf(b.plegd.Pid(), 10*time.Second)
	asked := b.asked()

	read := b.StopReading(b.pods[0])
	end := b.holdList()
	e := awaitCause(t, b, b.injected, health.ShimStuck, sweepLimit)
	took := time.Since(b.injected)
	if want := b.Shim(b.pods[0]); e.Culprit.PID != want || e.Culprit.State != health.LinkUnread {
		t.Errorf("want the shim %d that reads nothing: %s", want, e)
	}
	checkContainer(t, b, e)
	during := usageOf(b.plegd.Pid(), 10*time.Second)
	calls, left := b.asked()-asked, b.callsInside()
	read()
	end()
	b.plegd.AwaitState(30*time.Second, string(health.StateHealthy))
	after := b.callsInside()
	lab.Report(t, "%s, the sweep over %d containers: named after %.1f s, %g calls, %d stayed in the runtime during the fault, %d after it; plegd: %.1f ms of CPU a second and %d descriptors (healthy: %.1f ms, %d)",
		lab.RuntimeColumn(), sweptContainers, took.Seconds(), calls, left, after, 1000*during.cpu, during.fds, 1000*healthy.cpu, healthy.fds)
	if left > sweepLeaves || after > 0 {
		t.Errorf("%d calls stayed in the runtime during the fault and %d after it, want at most %d and 0", left, after, sweepLeaves)
	}
	checkUsage(t, healthy, during)
}

// TestCaseBookCost: what plegd uses while a shim is stopped and all is answered.
func TestCaseBookCost(t *testing.T) {
	needContainerd(t)
	needCase(t, "cost")
	b := newBench(t, &fault{})
	b.watch(&fault{})
	healthy := usageOf(b.plegd.Pid(), 10*time.Second)
	cont := b.stopShims(1)
	lab.Eventually(t, 20*time.Second, "the shim is named", func() error {
		if e := explain(t, b.plegd); e.Culprit == nil {
			return fmt.Errorf("%s", e)
		}
		return nil
	})
	during := usageOf(b.plegd.Pid(), 10*time.Second)
	cont()
	lab.Report(t, "%s, a stopped shim: plegd uses %.1f ms of CPU a second and %d descriptors (healthy: %.1f ms, %d)",
		lab.RuntimeColumn(), 1000*during.cpu, during.fds, 1000*healthy.cpu, healthy.fds)
	checkUsage(t, healthy, during)
}

func checkUsage(t *testing.T, healthy, during usage) {
	t.Helper()
	if more := during.cpu - healthy.cpu; more > maxFaultCPU {
		t.Errorf("%.1f ms of CPU a second more than without the fault, want %.0f", 1000*more, 1000*maxFaultCPU)
	}
	if more := during.fds - healthy.fds; more > maxFaultFDs {
		t.Errorf("%d descriptors more than without the fault, want %d", more, maxFaultFDs)
	}
}

// asked is how often plegd has asked for a single container.
func (b *bench) asked() float64 {
	n, _ := b.plegd.MustMetrics().Value("pleg_runtime_operations_total", "operation_type", "container_status")
	return n
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

// usage is what a process uses: CPU time a second, and the most descriptors.
type usage struct {
	cpu float64
	fds int
}

func usageOf(pid int, during time.Duration) (u usage) {
	began, from := time.Now(), cpuOf(pid)
	for time.Since(began) < during {
		if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
			u.fds = max(u.fds, len(open))
		}
		time.Sleep(25 * time.Millisecond)
	}
	u.cpu = (cpuOf(pid) - from).Seconds() / time.Since(began).Seconds()
	return u
}

// cpuOf is the CPU time of all threads of a process that live.
func cpuOf(pid int) (sum time.Duration) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name()))
		if ran, _, ok := strings.Cut(string(b), " "); ok {
			n, _ := strconv.ParseInt(ran, 10, 64)
			sum += time.Duration(n)
		}
	}
	return sum
}
