package health

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
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
			last := &facts.RelistResult{Start: start, End: end, ListContainers: tt.lists, Inspected: pods}
			next := end.Add(s)
			for now := end; now.Before(next.Add(tt.lists)); now = now.Add(s) {
				f := healthyFacts(now)
				f.Started = t0.Add(-time.Hour)
				f.Version.Ended, f.Relist.Last, f.Relist.Lists = now, last, []time.Duration{tt.lists, tt.lists}
				f.Relist.LastSeen, f.Modelled = start, facts.Modelled{LastSeen: start}
				f.Evidence.Kubelet = &facts.Kubelet{At: now, AnsweredAt: now, Version: tt.version}
				ns := w.At(&f, now)
				f.NodeStatus = &ns
				v := Judge(&f, now, nil)
				fails = fails || !v.RulesOK
				points = points || ns.NotReady || !ns.NotReadyFrom.IsZero() && !ns.NotReadyFrom.After(now)
				if older := f.Modelled.LastSeenBefore136; !older.IsZero() && ns.NotReadyBy.Before(older.Add(3*time.Minute)) && !ns.NotReadyBy.IsZero() {
					t.Errorf("%s: the window ends at %s, before the rule of an older kubelet fails", now.Sub(t0), ns.NotReadyBy.Sub(t0))
				}
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

// TestRounds follows the relists of a kubelet before 1.36, which lists again for each changed pod, and of one since.
func TestRounds(t *testing.T) {
	const s = time.Second
	relist := func(start, lists time.Duration, inspected int, err *facts.CallError) *facts.RelistResult {
		return &facts.RelistResult{Start: at(start), End: at(start + lists), ListContainers: lists, Inspected: inspected, Err: err}
	}
	var older, newer rounds
	never, own := time.Time{}, facts.Modelled{LastSeen: at(141 * s), BusySince: at(141 * s), EndsBy: at(150 * s)}
	for i, tt := range []struct {
		last               *facts.RelistResult
		seen, older, newer time.Time // the kubelet's last round, and its end; a zero one is as plegd's
	}{
		{nil, never, never, never},
		{relist(s, 10*s, 50, nil), never, at(11 * s), at(11 * s)}, // the first inspects all
		{relist(12*s, 10*s, 3, nil), at(12 * s), at(52 * s), at(32 * s)},
		{relist(12*s, 10*s, 3, nil), at(12 * s), at(52 * s), at(32 * s)}, // the same
		{relist(23*s, 10*s, 2, nil), at(12 * s), at(52 * s), at(32 * s)},
		{relist(60*s, 10*s, 9, &facts.CallError{}), at(12 * s), at(52 * s), at(32 * s)},
		{relist(71*s, 10*s, 1, nil), at(71 * s), at(111 * s), at(91 * s)},
		{relist(120*s, 10*s, 0, nil), never, at(130 * s), at(130 * s)},
		{relist(131*s, s/10, 200, nil), never, at(131*s + s/10), at(131*s + s/10)},
		{relist(140*s, s, 1, nil), at(140 * s), at(142 * s), at(142 * s)},
	} {
		older.follow(tt.last, true)
		newer.follow(tt.last, false)
		for k, end := range map[*rounds]time.Time{&older: tt.older, &newer: tt.newer} {
			under, next := own, own // the latter while its next lists are under way
			if !tt.seen.IsZero() {
				under, next = facts.Modelled{LastSeen: tt.seen, BusySince: tt.seen, EndsBy: end}, facts.Modelled{LastSeen: tt.seen, BusySince: end}
			}
			if a, b := k.correct(own, end.Add(-1)), k.correct(own, end); a != under || b != next {
				t.Errorf("step %d: %+v, %+v; want %+v, %+v", i, a, b, under, next)
			}
		}
	}
	if own.LastSeen = at(139 * s); older.correct(own, at(141*s)) != own {
		t.Error("plegd's own relist is older, and does not count")
	}
}
