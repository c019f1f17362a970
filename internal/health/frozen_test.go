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

// TestFrozenIsNoStorageStall: what a v1 freezer holds is in D, and waits for no
// disk; what is still in D afterwards does.
func TestFrozenIsNoStorageStall(t *testing.T) {
	thread := map[string]int{"D": 9}
	for name, tt := range map[string]struct {
		frozen   bool
		channels []string
		previous *Verdict
		looked   time.Duration // at the threads, since the cgroup was looked at
		want     bool
	}{
		"frozen":                         {frozen: true},
		"frozen, some where they waited": {frozen: true, channels: []string{refrigerator, "futex_do_wait"}},
		"by the channel alone":           {channels: []string{refrigerator, "futex_do_wait"}},
		"thawed, not looked at since":    {previous: &Verdict{Reason: RuntimeFrozen, Active: []Active{{ID: RuntimeFrozen}}}, looked: -time.Millisecond},
		"thawed, and still in D":         {previous: &Verdict{Reason: RuntimeFrozen, Active: []Active{{ID: RuntimeFrozen}}}, looked: time.Millisecond, want: true},
		"a disk":                         {channels: []string{"io_schedule"}, want: true},
	} {
		f := healthyFacts(t0)
		f.Relist.Lists = []time.Duration{3 * time.Second}
		f.Evidence.Cgroup = &Cgroup{At: t0.Add(-time.Second), Frozen: tt.frozen}
		f.Evidence.Process = &Process{
			At: f.Evidence.Cgroup.At.Add(tt.looked), PID: 812, Comm: "containerd", Alive: true,
			Threads: thread, BlockedSince: t0.Add(-5 * time.Second), WaitChannels: tt.channels,
		}
		if got := Judge(&f, t0, tt.previous).active(RuntimeStorageStall) != nil; got != tt.want {
			t.Errorf("%s: a storage stall %v, want %v", name, got, tt.want)
		}
	}
}
