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
