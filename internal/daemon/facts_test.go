package daemon

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/relist"
)

// TestLongest: what a judgement says of thousands of inspections are the few that
// took longest, as sorting all of them would tell; and it makes nothing of the
// others, however many there are.
func TestLongest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		all := make([]ended, rng.IntN(40))
		for i := range all {
			all[i].took = time.Duration(rng.IntN(20))
			all[i].Inspection = &relist.Inspection{Failures: i}
		}
		n := 1 + rng.IntN(6)
		want := slices.Clone(all)
		slices.SortStableFunc(want, func(a, b ended) int { return int(b.took - a.took) })
		want = want[:min(n, len(want))]
		if got := longest(slices.Values(all), n); !slices.Equal(got, want) {
			t.Fatalf("the %d longest of %v are %v, want %v", n, all, got, want)
		}
	}
	many := make([]ended, 5000)
	for i := range many {
		many[i].took = time.Duration(rng.Int64())
	}
	if allocs := testing.AllocsPerRun(10, func() { longest(slices.Values(many), 5) }); allocs > 3 {
		t.Errorf("%g allocations for 5 of 5000", allocs)
	}
}

// TestAnsweredSince: when the runtime answers again, whether it had failed or
// hung, and for as long as it continues to.
func TestAnsweredSince(t *testing.T) {
	t0 := time.Now()
	relisted := func(start, took time.Duration, failures int) *relist.Snapshot {
		s := &relist.Snapshot{Failures: failures, Last: &relist.Result{Start: t0.Add(start), End: t0.Add(start + took)}}
		if failures > 0 {
			s.Last.Err = &cri.Error{Code: cri.CodeUnavailable}
		}
		return s
	}
	var a answered
	for i, tt := range []struct {
		snapshot *relist.Snapshot
		want     time.Time
	}{
		{&relist.Snapshot{}, time.Time{}},
		{relisted(0, time.Millisecond, 0), time.Time{}},
		{relisted(time.Second, 20*time.Second, 0), t0.Add(21 * time.Second)}, // it hung
		{relisted(22*time.Second, time.Millisecond, 0), t0.Add(21 * time.Second)},
		{relisted(23*time.Second, 20*time.Second, 1), time.Time{}}, // it failed
		{relisted(44*time.Second, time.Second, 0), t0.Add(45 * time.Second)},
		{relisted(46*time.Second, time.Millisecond, 0), t0.Add(45 * time.Second)},
	} {
		if got := a.since(tt.snapshot); !got.Equal(tt.want) {
			t.Errorf("%d: %s, want %s", i, got.Sub(t0), tt.want.Sub(t0))
		}
	}
}
