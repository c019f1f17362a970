package kubelet

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

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
