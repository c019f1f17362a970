package health

import (
	"testing"
	"time"
)

// TestThrottledForSeconds: the kernel adds up the time of a throttling when it
// ends, so that one of several seconds shows in the periods only.
func TestThrottledForSeconds(t *testing.T) {
	f := healthyFacts(t0)
	f.Relist.Lists = []time.Duration{2 * time.Second}
	f.Evidence.Cgroup = &Cgroup{At: t0, Throttled: .9, ThrottledPeriods: 1}
	v := Judge(&f, t0, nil)
	if v.Reason != RuntimeThrottled {
		t.Fatalf("throttled: %q", v.Reason)
	}
	f.Evidence.Cgroup = &Cgroup{At: t0, ThrottledPeriods: 1}
	if v = Judge(&f, t0, v); v.Reason != RuntimeThrottled {
		t.Errorf("throttled all the time: %q", v.Reason)
	}
	f.Evidence.Cgroup = &Cgroup{At: t0}
	if v = Judge(&f, t0, v); v.Reason == RuntimeThrottled {
		t.Error("throttled, though no period was")
	}
}

// TestThrottledKeepsItsName: under a constant quota a sample takes more or less,
// and lists that meet a fresh period are quick.
func TestThrottledKeepsItsName(t *testing.T) {
	const ms = time.Millisecond
	f := healthyFacts(t0)
	f.Relist.Lists = []time.Duration{900 * ms}
	f.Evidence.Cgroup = &Cgroup{At: t0, Throttled: .9, ThrottledPeriods: 1}
	v := Judge(&f, t0, nil)
	for i, c := range []struct {
		taken, periods float64
		list           time.Duration
	}{{.2, .4, 5 * ms}, {.15, .2, 5 * ms}, {.6, .7, 5 * ms}, {.1, .1, 5 * ms}, {.2, .3, 600 * ms}, {.4, .5, 5 * ms}} {
		f.Relist.Lists = append(f.Relist.Lists, c.list)
		f.Evidence.Cgroup = &Cgroup{At: t0, Throttled: c.taken, ThrottledPeriods: c.periods}
		if v = Judge(&f, t0, v); v.Reason != RuntimeThrottled {
			t.Errorf("sample %d: %q", i, v.Reason)
		}
	}
	f.Evidence.Cgroup = &Cgroup{At: t0}
	if v = Judge(&f, t0, v); v.Reason != "" {
		t.Errorf("the quota is lifted: %q", v.Reason)
	}
}
