//go:build e2e

package faults

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

const (
	// quotaPods are the pods at their quota, quotaTime what each gets of half a second.
	quotaPods = 8
	quotaTime = 25 * time.Millisecond
	quotasFor = 30 * time.Second
	// idleLeast is the share of the CPUs' time below which the machine is busy with
	// other work as well.
	idleLeast = 0.4
)

// TestCaseBookQuotas is the reverse of case 10: pods that are kept from running by their
// own quotas make /proc/pressure/cpu say that somebody waits most of the time, while the
// node is idle and the runtime has all that it wants. Nothing is named.
func TestCaseBookQuotas(t *testing.T) {
	needContainerd(t)
	needCase(t, "quotas")
	b := newBench(t, &fault{})
	b.watch(&fault{})
	for range quotaPods {
		pid, _ := startHog(t)
		lab.NewControlGroup(t, "cpu", pid).Quota(quotaTime)
	}
	var idle, all, waits float64
	for began, tick := time.Now(), time.NewTicker(time.Second); time.Since(began) < quotasFor; <-tick.C {
		if idle == 0 && lab.CPUPressure() >= lab.Pressed {
			idle, all = cpuTime(t)
		}
		waits = max(waits, lab.CPUPressure())
		if e := explain(t, b.plegd); e.Reason != "" {
			t.Errorf("%s after %s", e, time.Since(began))
		}
	}
	if idle == 0 {
		t.Fatalf("some avg10 of /proc/pressure/cpu is %.0f at most: nobody is seen to wait", waits)
	}
	idleNow, allNow := cpuTime(t)
	share := (idleNow - idle) / (allNow - all)
	if share < idleLeast {
		lab.Unable(t, "the machine is busy with other work")
	}
	lab.Report(t, "%s, %d pods at quotas of their own: nothing is named in %s, with some avg10 up to %.0f %% and the CPUs %.0f %% idle",
		lab.RuntimeColumn(), quotaPods, quotasFor, waits, 100*share)
}

// cpuTime returns the idle and the whole time of all CPUs so far, in ticks.
func cpuTime(t *testing.T) (idle, all float64) {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line)[1:] {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			t.Fatal(err)
		}
		if all += n; i == 3 { // user, nice, system, idle
			idle = n
		}
	}
	return idle, all
}
