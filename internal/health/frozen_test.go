package health

import (
	"testing"
	"time"
)

// TestThawed: threads that a v1 freezer holds are in D, and are still said to be
// when the cgroup has been seen thawed and they have not been looked at again.
func TestThawed(t *testing.T) {
	f := healthyFacts(t0)
	f.Relist.Lists = []time.Duration{3 * time.Second}
	f.Evidence.Process = &Process{
		At: t0.Add(-900 * time.Millisecond), PID: 812, Comm: "containerd", Alive: true,
		Threads: map[string]int{"D": 9}, BlockedSince: t0.Add(-5 * time.Second),
	}
	f.Evidence.Cgroup = &Cgroup{At: t0.Add(-time.Second), Frozen: true}
	v := Judge(&f, t0, nil)
	if v.Reason != RuntimeFrozen {
		t.Fatalf("frozen: %q", v.Reason)
	}
	f.Evidence.Cgroup = &Cgroup{At: t0}
	if v = Judge(&f, t0, v); v.Reason != RuntimeFrozen {
		t.Errorf("thawed since the threads were looked at: %q", v.Reason)
	}
	f.Evidence.Process.Threads = map[string]int{"S": 8, "R": 1}
	if v = Judge(&f, t0, v); v.Reason == RuntimeFrozen {
		t.Error("frozen, though the threads run")
	}
}
