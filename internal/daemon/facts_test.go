package daemon

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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
