package health

import (
	"testing"
	"time"
)

// TestKubeletVersions: a list that takes 25 s and 10 changed pods turn a kubelet before
// 1.36 NotReady for some time, and none since; a list of 80 s and a new pod every 15 s
// turn each one NotReady (measured with 1.35.4 and 1.37.2).
func TestKubeletVersions(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		version       string
		lists         time.Duration
		pods          int
		fails, points bool // the rule fails at some time; the API may show NotReady
	}{
		{"v1.35.4", 25 * s, 10, true, true},
		{"v1.37.2", 25 * s, 10, false, false},
		{"", 25 * s, 10, false, true},
		{"v1.35.4", 80 * s, 5, true, true},
		{"v1.37.2", 80 * s, 5, true, true},
		{"v1.35.4", 100 * time.Millisecond, 200, false, false},
	} {
		var w NodeWriter
		start := t0
		fails, points := false, false
		for round := range 16 {
			end := start.Add(tt.lists)
			pods := tt.pods
			if round != 2 && tt.pods > 5 {
				pods = 0
			}
			last := &RelistResult{Start: start, End: end, ListContainers: tt.lists, Inspected: pods}
			next := end.Add(s)
			for now := end; now.Before(next.Add(tt.lists)); now = now.Add(s) {
				f := healthyFacts(now)
				f.Started = t0.Add(-time.Hour)
				f.Version.Ended, f.Relist.Last, f.Relist.Lists = now, last, []time.Duration{tt.lists, tt.lists}
				f.Relist.LastSeen, f.Modelled = start, Modelled{LastSeen: start}
				f.Evidence.Kubelet = &Kubelet{At: now, AnsweredAt: now, Version: tt.version}
				ns := w.At(&f, now)
				f.NodeStatus = &ns
				v := Judge(&f, now, nil)
				fails = fails || !v.RulesOK
				points = points || ns.NotReady || !ns.NotReadyFrom.IsZero() && !ns.NotReadyFrom.After(now)
				if tt.version == "" && !v.NodeReady {
					t.Errorf("%s: NotReady is certain though the kubelet's version is not known", now.Sub(t0))
				}
			}
			start = next
		}
		if fails != tt.fails || points != tt.points {
			t.Errorf("kubelet %q, lists of %s, %d pods: the rules fail %t, a window opens %t; want %t, %t",
				tt.version, tt.lists, tt.pods, fails, points, tt.fails, tt.points)
		}
	}
}
