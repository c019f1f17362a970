package health

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// TestThrottledKeepsItsName: under a constant quota a sample takes more or less,
// and lists that meet a fresh period are quick. The kernel adds up the time of a throttling
// when it ends: one of several seconds shows in the periods only.
func TestThrottledKeepsItsName(t *testing.T) {
	const ms = time.Millisecond
	f := healthyFacts(t0)
	f.Relist.Lists = []time.Duration{900 * ms}
	f.Evidence.Cgroup = &facts.Cgroup{At: t0, Throttled: .9, ThrottledPeriods: 1}
	v := Judge(&f, t0, nil)
	for i, c := range []struct {
		taken, periods float64
		list           time.Duration
	}{{.2, .4, 5 * ms}, {.15, .2, 5 * ms}, {.6, .7, 5 * ms}, {.1, .1, 5 * ms}, {0, 1, 5 * ms}, {.2, .3, 600 * ms}, {.4, .5, 5 * ms}} {
		f.Relist.Lists = append(f.Relist.Lists, c.list)
		f.Evidence.Cgroup = &facts.Cgroup{At: t0, Throttled: c.taken, ThrottledPeriods: c.periods}
		if v = Judge(&f, t0, v); v.Reason != RuntimeThrottled {
			t.Errorf("sample %d: %q", i, v.Reason)
		}
	}
	f.Evidence.Cgroup = &facts.Cgroup{At: t0}
	if v = Judge(&f, t0.Add(holdFor), v); v.Reason != "" {
		t.Errorf("the quota is lifted: %q", v.Reason)
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
