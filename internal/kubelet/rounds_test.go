package kubelet

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// TestRounds follows the relists of a kubelet that lists again for each changed pod, with lists of plegd's that get slow
// and quick again.
func TestRounds(t *testing.T) {
	const s = time.Second
	relist := func(start, lists time.Duration, err *facts.CallError) *facts.RelistResult {
		return &facts.RelistResult{Start: at(start), End: at(start + lists), ListContainers: lists, Err: err}
	}
	var r rounds
	for i, tt := range []struct {
		last  *facts.RelistResult
		lists int
		seen  time.Duration // start of the kubelet's round, 0 where it is as plegd's
		busy  time.Duration // its end
	}{
		{nil, 0, 0, 0},
		{relist(s, 10*s, nil), 50, 0, 11 * s}, // the first inspects all
		{relist(12*s, 10*s, nil), 3, 12 * s, 52 * s},
		{relist(12*s, 10*s, nil), 3, 12 * s, 52 * s},                // the same
		{relist(23*s, 10*s, nil), 2, 12 * s, 53 * s},                // one list of the kubelet's has ended too
		{relist(60*s, 10*s, &facts.CallError{}), 9, 12 * s, 53 * s}, // a failed one
		{relist(61*s, 10*s, nil), 1, 12 * s, 71 * s},                // all have ended; its next round begins
		{relist(72*s, 10*s, nil), 0, 72 * s, 112 * s},               // with the 2 and the 1
		{relist(83*s, s/10, nil), 0, 72 * s, 83*s + s/10},           // quick again: all have ended
		{relist(85*s, s/10, nil), 0, 0, 85*s + s/10},
		{relist(87*s, s/10, nil), 200, 0, 87*s + s/10},
		{relist(90*s, s, nil), 1, 90 * s, 92 * s},
	} {
		r.follow(tt.last, tt.lists)
		var seen time.Time
		if tt.seen > 0 {
			seen = at(tt.seen)
		}
		ends := r.ends.latest.Add(r.ends.earliest.Sub(r.ends.latest) / 2)
		if !r.seen.Equal(seen) || tt.busy > 0 && !ends.Equal(at(tt.busy)) {
			t.Errorf("step %d: the kubelet's round of %s ends at %s; want %s, %s", i, r.seen, ends, seen, at(tt.busy))
		}
	}
}

// TestRoundsEnd: a relist of the kubelet's that ends in time opens no window, and one that outlasts the threshold fails
// the rule at that moment.
func TestRoundsEnd(t *testing.T) {
	const s = time.Second
	for remain, want := range map[int]window{0: {}, 1: {earliest: at(180 * s)}, 4: exactly(at(180 * s))} {
		r := rounds{start: t0, end: t0, seen: t0, remain: remain}
		r.ends = exactly(at(time.Duration(70+70*remain)*s)).plus(-70*s, 70*s)
		f := facts.Facts{Config: facts.Config{RelistThreshold: 180 * s}}
		f.Relist.LastSeen, f.Modelled.LastSeen = at(70*s), at(70*s)
		start, fails := r.estimate(&f)
		if !start.Equal(t0) || fails != want {
			t.Errorf("%d lists remain: since %s, the rule fails %v; want %v", remain, start, fails, want)
		}
	}
}
