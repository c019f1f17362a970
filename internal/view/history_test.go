package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
)

func TestHistory(t *testing.T) {
	start := time.Date(2026, 11, 21, 3, 4, 5, 0, time.UTC)
	h := NewHistory(start)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	last := func(now float64, n int) []RelistBin { return h.Bins(at(now))[HistoryBins-n:] }
	h.Add(at(1), time.Millisecond, true)
	h.Add(at(2), 7*time.Millisecond, true)
	h.Add(at(3), 2*time.Millisecond, false)
	h.Add(at(11), time.Second, true)
	h.Judged(at(11), facts.StateDegraded) // the worst one counts
	h.Judged(at(12), facts.StateHealthy)
	want := []RelistBin{{}, {Slowest: 7 * time.Millisecond, Relists: 3, Failed: 1}, {}, {Slowest: time.Second, Relists: 1, State: facts.StateDegraded}}
	if diff := cmp.Diff(want, last(12, 4)); diff != "" {
		t.Error(diff)
	}
	// Ten minutes later the old ones are gone, and their places are used again.
	h.Add(at(601), 3*time.Millisecond, true)
	if diff := cmp.Diff([]RelistBin{{Slowest: 3 * time.Millisecond, Relists: 1}}, last(602, 1)); diff != "" {
		t.Error(diff)
	}
	check.Equal(t, h.Bins(at(602))[0], RelistBin{}, "a bin of ten minutes ago is still there")
	// A restart that takes 20 s leaves a gap of four bins.
	saved, again := h.Bins(at(602)), NewHistory(at(622))
	again.Restore(at(602), saved)
	again.Add(at(623), time.Millisecond, true)
	want = []RelistBin{saved[HistoryBins-1], {}, {}, {}, {Slowest: time.Millisecond, Relists: 1}}
	if diff := cmp.Diff(want, again.Bins(at(623))[HistoryBins-5:]); diff != "" {
		t.Error(diff)
	}
}
