package kubelet

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/factstest"
)

// at returns the time d after t0, ago the time d before it.
func at(d time.Duration) time.Time  { return t0.Add(d) }
func ago(d time.Duration) time.Time { return t0.Add(-d) }

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestKubeletRules(t *testing.T) {
	const ms = time.Millisecond
	not := &facts.Condition{Reason: "R", Message: "M"}
	for _, tt := range []struct {
		name                  string
		change                func(*facts.Facts)
		pleg, syncLoop, ready bool
		message               string
	}{
		{"well", func(*facts.Facts) {}, true, true, true, ""},
		{"exactly at the threshold", func(f *facts.Facts) { f.Relist.LastSeen = t0.Add(-3 * time.Minute) }, true, true, true, ""},
		{"just past the threshold", func(f *facts.Facts) { f.Relist.LastSeen = t0.Add(-3*time.Minute - 1234*ms) }, false, false, false,
			"PLEG is not healthy: pleg was last seen active 3m1.234s ago; threshold is 3m0s"},
		{"the modelled kubelet decides when it is older", func(f *facts.Facts) { f.Modelled.LastSeen = t0.Add(-4 * time.Minute) }, false, false, false,
			"PLEG is not healthy: pleg was last seen active 4m0s ago; threshold is 3m0s"},
		{"plegd's own decides when it is older", func(f *facts.Facts) {
			f.Relist.LastSeen, f.Modelled.LastSeen = t0.Add(-5*time.Minute), t0.Add(-4*time.Minute)
		}, false, false, false, "PLEG is not healthy: pleg was last seen active 5m0s ago; threshold is 3m0s"},
		{"never relisted", func(f *facts.Facts) { f.Relist.LastSeen = time.Time{} }, false, false, false,
			"PLEG is not healthy: pleg has yet to be successful"},
		{"never relisted, of a kubelet that ran before plegd", func(f *facts.Facts) {
			f.Relist.LastSeen, f.KubeletStarted = time.Time{}, t0.Add(-2*time.Hour)
		}, false, false, false, "PLEG is not healthy: pleg was last seen active 1h0m0s ago; threshold is 3m0s"},
		{"the kubelet's own Status fails", func(f *facts.Facts) {
			f.Evidence.Kubelet = &facts.Kubelet{Status: &facts.StartCalls{Errors: 6, Since: t0.Add(-31 * time.Second)}}
		}, true, false, false, "container runtime is down"},
		{"one Status of the kubelet's has failed", func(f *facts.Facts) {
			f.Evidence.Kubelet = &facts.Kubelet{Status: &facts.StartCalls{Errors: 1, Since: t0.Add(-31 * time.Second)}}
		}, true, true, true, ""},
		{"another threshold", func(f *facts.Facts) {
			f.Config.RelistThreshold = 10 * time.Minute
			f.Relist.LastSeen = t0.Add(-601 * time.Second)
		}, false, false, false, "PLEG is not healthy: pleg was last seen active 10m1s ago; threshold is 10m0s"},
		{"good Status 29.999 s ago", func(f *facts.Facts) { f.Status.LastGood = t0.Add(-29999 * ms) }, true, true, true, ""},
		{"good Status exactly 30 s ago", func(f *facts.Facts) { f.Status.LastGood = t0.Add(-30 * time.Second) }, true, false, false,
			"container runtime is down"},
		{"no good Status ever", func(f *facts.Facts) { f.Status.LastGood = time.Time{} }, true, false, false,
			"container runtime status check may not have completed yet"},
		{"before the first Status", func(f *facts.Facts) { f.Status = facts.Status{} }, true, false, false,
			"[container runtime status check may not have completed yet, network state unknown]"},
		{"not ready", func(f *facts.Facts) { f.Status.RuntimeReady = not }, true, false, false,
			"container runtime not ready: RuntimeReady=false reason:R message:M"},
		{"not ready, 30 s on", func(f *facts.Facts) { f.Status.RuntimeReady, f.Status.LastGood = not, t0.Add(-31*time.Second) }, true, false, false,
			"[container runtime is down, container runtime not ready: RuntimeReady=false reason:R message:M]"},
		{"the condition is missing", func(f *facts.Facts) { f.Status.RuntimeReady = nil }, true, false, false,
			"container runtime not ready: <nil>"},
		{"the network is not ready", func(f *facts.Facts) { f.Status.NetworkReady = not }, true, true, false,
			"container runtime network not ready: NetworkReady=false reason:R message:M"},
		{"the network's condition is missing", func(f *facts.Facts) { f.Status.NetworkReady = nil }, true, true, false,
			"container runtime network not ready: <nil>"},
		{"the kubelet has restarted, the next Status is under way", func(f *facts.Facts) {
			f.KubeletStarted, f.Status.LastGood, f.Status.InFlightSince = t0.Add(-4*time.Second), t0.Add(-5*time.Second), t0.Add(-ms)
		}, true, true, true, ""},
		{"the kubelet has restarted, Status hangs", func(f *facts.Facts) {
			f.KubeletStarted, f.Status.LastGood, f.Status.InFlightSince = t0.Add(-4*time.Second), t0.Add(-5*time.Second), t0.Add(-2*time.Second)
		}, true, false, false, "[container runtime status check may not have completed yet, network state unknown]"},
		{"everything at once, in the kubelet's order", func(f *facts.Facts) {
			f.Relist.LastSeen = t0.Add(-200 * time.Second)
			f.Status.LastGood = t0.Add(-40 * time.Second)
			f.Status.RuntimeReady, f.Status.NetworkReady = not, not
		}, false, false, false,
			"[container runtime is down, PLEG is not healthy: pleg was last seen active 3m20s ago; threshold is 3m0s, " +
				"container runtime not ready: RuntimeReady=false reason:R message:M, " +
				"container runtime network not ready: NetworkReady=false reason:R message:M]"},
	} {
		f := factstest.Healthy(t0)
		tt.change(&f)
		k := Apply(&f, t0)
		if k.PLEGHealthy != tt.pleg || k.SyncLoopAllowed != tt.syncLoop || k.NodeReady != tt.ready {
			t.Errorf("%s: PLEG healthy %t, sync loop allowed %t, node ready %t; want %t, %t, %t", tt.name,
				k.PLEGHealthy, k.SyncLoopAllowed, k.NodeReady, tt.pleg, tt.syncLoop, tt.ready)
		}
		check.Equal(t, k.Message, tt.message, "%s: message", tt.name)
	}
}
