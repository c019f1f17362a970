package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHistory(t *testing.T) {
	h := NewHistory(time.Date(2026, 11, 21, 3, 4, 5, 0, time.UTC))
	at := func(s float64) time.Time {
		return time.Date(2026, 11, 21, 3, 4, 5, 0, time.UTC).Add(time.Duration(s * float64(time.Second)))
	}
	if got := h.At(at(0)); len(got) != HistoryBins || got[HistoryBins-1] != (RelistBin{}) {
		t.Errorf("a new history is not empty: %v", got)
	}
	h.Add(at(1), time.Millisecond, true)
	h.Add(at(2), 7*time.Millisecond, true)
	h.Add(at(3), 2*time.Millisecond, false)
	h.Add(at(11), time.Second, true)
	last := func(now float64, n int) []RelistBin { return h.At(at(now))[HistoryBins-n:] }
	want := []RelistBin{{}, {Slowest: 7 * time.Millisecond, Relists: 3, Failed: 1}, {}, {Slowest: time.Second, Relists: 1}}
	if diff := cmp.Diff(want, last(12, 4)); diff != "" {
		t.Error(diff)
	}
	// Ten minutes later the old ones are gone, and their places are used again.
	h.Add(at(601), 3*time.Millisecond, true)
	if diff := cmp.Diff([]RelistBin{{Slowest: 3 * time.Millisecond, Relists: 1}}, last(602, 1)); diff != "" {
		t.Error(diff)
	}
	if first := h.At(at(602))[0]; first != (RelistBin{}) {
		t.Errorf("a bin of ten minutes ago is still there: %v", first)
	}
	if n := testing.AllocsPerRun(100, func() { h.Add(at(700), time.Millisecond, true) }); n > 0 {
		t.Errorf("remembering a relist allocates %v times", n)
	}
}
