package health

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/wchan"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestThawed: threads that a v1 freezer holds are in D, and are still said to be
// when the cgroup has been seen thawed and they have not been looked at again.
func TestThawed(t *testing.T) {
	f := healthyFacts(t0)
	f.Relist.Lists = []time.Duration{3 * time.Second}
	f.Evidence.Process = &facts.Process{
		At: t0.Add(-900 * time.Millisecond), PID: 812, Comm: "containerd", Alive: true,
		Threads: map[string]int{"D": 9}, Blocked: []facts.BlockedThread{{TID: 812, Since: t0.Add(-5 * time.Second), Channel: "futex_do_wait"}},
	}
	f.Evidence.Cgroup = &facts.Cgroup{At: t0.Add(-time.Second), Frozen: true}
	f.Relist.InFlight = &facts.InFlight{Start: t0.Add(-time.Second), Phase: facts.PhaseListPodSandbox, PhaseStart: t0.Add(-time.Second)}
	v := Judge(&f, t0, nil)
	must.Equal(t, v.Reason, RuntimeFrozen, "frozen")
	f.Evidence.Cgroup = &facts.Cgroup{At: t0}
	if v = Judge(&f, t0, v); v.Reason != RuntimeFrozen {
		t.Errorf("thawed since the threads were looked at: %q", v.Reason)
	}
	f.Evidence.Process.Threads = map[string]int{"S": 8, "R": 1}
	if v = Judge(&f, t0.Add(holdFor), v); v.Reason == RuntimeFrozen {
		t.Error("frozen, though the threads run")
	}
}

// TestFrozenIsNoStorageStall: processes in a v1 freezer are in D, and wait for no disk;
// those still in D afterwards do.
func TestFrozenIsNoStorageStall(t *testing.T) {
	thread := map[string]int{"D": 9}
	for name, tt := range map[string]struct {
		frozen   bool
		channels []string
		before   bool          // frozen until the last sample but one
		looked   time.Duration // at the threads, since the cgroup was last seen frozen
		want     bool
	}{
		"frozen":                         {frozen: true, channels: []string{"io_schedule"}},
		"frozen, some where they waited": {frozen: true, channels: []string{wchan.Refrigerator, "futex_do_wait"}},
		"by the channel alone":           {channels: []string{wchan.Refrigerator, "futex_do_wait"}},
		"thawed, not looked at since":    {channels: []string{"io_schedule"}, before: true, looked: 900 * time.Millisecond},
		"thawed, and still in D":         {channels: []string{"io_schedule"}, before: true, looked: 2 * time.Second, want: true},
		"a disk":                         {channels: []string{"io_schedule"}, want: true},
	} {
		f := healthyFacts(t0)
		f.Relist.Lists = []time.Duration{3 * time.Second}
		f.Evidence.Cgroup = &facts.Cgroup{At: t0.Add(-time.Second), Frozen: tt.frozen}
		f.Evidence.Process = &facts.Process{
			At: f.Evidence.Cgroup.At, PID: 812, Comm: "containerd", Alive: true,
			Threads: thread,
		}
		if tt.before {
			f.Evidence.Cgroup.FrozenAt = t0.Add(-3 * time.Second)
			f.Evidence.Process.At = f.Evidence.Cgroup.FrozenAt.Add(tt.looked)
		}
		for i, channel := range tt.channels {
			f.Evidence.Process.Blocked = append(f.Evidence.Process.Blocked, facts.BlockedThread{TID: 812 + i, Since: t0.Add(-5 * time.Second), Channel: channel})
		}
		check.Equal(t, Judge(&f, t0, nil).ActiveReason(RuntimeStorageStall) != nil, tt.want, "%s: a storage stall", name)
	}
}

// TestStoppedAgain: a runtime that is stopped for a part of every second answers
// each list quickly that falls between two stops.
func TestStoppedAgain(t *testing.T) {
	const ms = time.Millisecond
	judge := func(previous *facts.Verdict, stopped time.Duration, stops ...time.Duration) *facts.Verdict {
		f := healthyFacts(t0)
		p := &facts.Process{At: t0, PID: 812, Comm: "containerd", Alive: true, Threads: map[string]int{"S": 9}, StoppedAt: t0.Add(-stopped)}
		for _, s := range stops {
			p.Stops = append(p.Stops, t0.Add(-s))
		}
		f.Evidence.Process = p
		if previous != nil {
			previous.Active[0].Seen = previous.Active[0].Seen.Add(-time.Second)
		}
		return Judge(&f, t0, previous)
	}
	check.Equal(t, judge(nil, 300*ms, 900*ms).Reason, "", "stopped once")
	check.Equal(t, judge(nil, 300*ms, 20*time.Second, 900*ms).Reason, "", "stopped twice, long apart")
	v := judge(nil, 300*ms, 1900*ms, 900*ms)
	must.Equal(t, v.Reason, RuntimeFrozen, "stopped twice")
	if v = judge(v, 1200*ms, 2900*ms, 1900*ms); v.Reason != RuntimeFrozen {
		t.Errorf("between two stops: %q", v.Reason)
	}
	if v = judge(v, 2200*ms, 3900*ms, 2900*ms); v.Reason != RuntimeFrozen {
		t.Errorf("a second after the last stop: %q", v.Reason)
	}
	v.Active[0].Seen = t0.Add(-holdFor)
	if v = judge(v, 4200*ms, 5900*ms, 4900*ms); v.Reason != "" {
		t.Errorf("after the last stop: %q", v.Reason)
	}
}

// TestHangUnderQuota: what a quota takes is known a look or two after it began to;
// until then it is not said that the runtime hangs for reasons of its own.
func TestHangUnderQuota(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name             string
		hangs, throttled time.Duration // ago; 0: never
		version          facts.Call
		want             string
	}{
		{"a list alone, without a quota", 1600 * ms, 0, facts.Call{LastOK: t0.Add(-1200 * ms)}, RuntimeListStall},
		{"a list alone", 1600 * ms, 500 * ms, facts.Call{LastOK: t0.Add(-1200 * ms)}, ""},
		{"a list alone, throttled before", 1600 * ms, 1700 * ms, facts.Call{LastOK: t0.Add(-1200 * ms)}, RuntimeListStall},
		{"a list alone, for long", 2600 * ms, 500 * ms, facts.Call{LastOK: t0.Add(-1200 * ms)}, RuntimeListStall},
		{"every call", 1600 * ms, 500 * ms, facts.Call{LastOK: t0.Add(-time.Hour), InFlightSince: t0.Add(-1200 * ms)}, ""},
		{"every call, without a quota", 1600 * ms, 0, facts.Call{LastOK: t0.Add(-time.Hour), InFlightSince: t0.Add(-1200 * ms)}, RuntimeUnresponsive},
	} {
		f := healthyFacts(t0)
		start := t0.Add(-tt.hangs)
		f.Relist.InFlight = &facts.InFlight{Start: start, Phase: facts.PhaseListContainers, PhaseStart: start}
		f.Calls = map[string]facts.Call{opVersion: tt.version}
		f.Status.LastGood = start.Add(-time.Second)
		f.Evidence.Cgroup = &facts.Cgroup{At: t0.Add(-100 * ms), Throttled: .1}
		if tt.throttled > 0 {
			f.Evidence.Cgroup.ThrottledAt = t0.Add(-tt.throttled)
		}
		named(t, tt.name, &f, tt.want)
	}
}

// TestQuotaIsLifted: the list that was slow under a quota is still the quota's when that
// takes no time any more.
func TestQuotaIsLifted(t *testing.T) {
	f := healthyFacts(t0)
	f.Relist.Lists = []time.Duration{6 * time.Second, 4 * time.Second}
	f.Relist.Last = &facts.RelistResult{Start: t0.Add(-5 * time.Second), End: t0.Add(-time.Second)}
	f.Evidence.Cgroup = &facts.Cgroup{At: t0, Throttled: 0.9, ThrottledPeriods: 1, ThrottledAt: t0}
	v := Judge(&f, t0, nil)
	f.Evidence.Cgroup = &facts.Cgroup{At: t0.Add(maxHold), ThrottledAt: t0}
	f.Relist.Last.End = t0.Add(9 * time.Second)
	if v = Judge(&f, t0.Add(maxHold), v); v.Reason != RuntimeThrottled {
		t.Errorf("lifted: %s", listed(v))
	}
	f.Relist.Lists, f.Relist.Last = []time.Duration{4 * time.Second, time.Millisecond}, &facts.RelistResult{Start: t0.Add(2 * maxHold), End: t0.Add(2 * maxHold)}
	f.Relist.LastSeen, f.Modelled.LastSeen, f.Status.LastGood = f.Relist.Last.Start, f.Relist.Last.Start, f.Relist.Last.Start
	if v = Judge(&f, t0.Add(2*maxHold), v); v.Reason != "" {
		t.Errorf("quick again: %s", listed(v))
	}
}
