package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/health"
)

func TestHistory(t *testing.T) {
	h := NewHistory(time.Date(2026, 11, 21, 3, 4, 5, 0, time.UTC))
	at := func(s float64) time.Time {
		return time.Date(2026, 11, 21, 3, 4, 5, 0, time.UTC).Add(time.Duration(s * float64(time.Second)))
	}
	if got := h.At(at(0)).Bins; len(got) != HistoryBins || got[HistoryBins-1] != (RelistBin{}) {
		t.Errorf("a new history is not empty: %v", got)
	}
	h.Add(at(1), time.Millisecond, true)
	h.Add(at(2), 7*time.Millisecond, true)
	h.Add(at(3), 2*time.Millisecond, false)
	h.Add(at(11), time.Second, true)
	last := func(now float64, n int) []RelistBin { return h.At(at(now)).Bins[HistoryBins-n:] }
	want := []RelistBin{{}, {Slowest: 7 * time.Millisecond, Relists: 3, Failed: 1}, {}, {Slowest: time.Second, Relists: 1}}
	if diff := cmp.Diff(want, last(12, 4)); diff != "" {
		t.Error(diff)
	}
	// Ten minutes later the old ones are gone, and their places are used again.
	h.Add(at(601), 3*time.Millisecond, true)
	if diff := cmp.Diff([]RelistBin{{Slowest: 3 * time.Millisecond, Relists: 1}}, last(602, 1)); diff != "" {
		t.Error(diff)
	}
	if first := h.At(at(602)).Bins[0]; first != (RelistBin{}) {
		t.Errorf("a bin of ten minutes ago is still there: %v", first)
	}
	// The worst verdict of a bin counts, and only in its own ten minutes.
	h.Judged(at(606), health.StateDegraded)
	h.Judged(at(607), health.StateHealthy)
	h.Judged(at(611), health.StateHealthy)
	want = []RelistBin{{Slowest: 3 * time.Millisecond, Relists: 1}, {State: health.StateDegraded}, {State: health.StateHealthy}}
	if diff := cmp.Diff(want, last(612, 3)); diff != "" {
		t.Error(diff)
	}
	if got := last(1206, 1)[0]; got != (RelistBin{}) {
		t.Errorf("a verdict of ten minutes ago is still there: %v", got)
	}
	if got := h.At(at(612)); !got.From.Equal(at(15)) || got.Bin != 5*time.Second {
		t.Errorf("the first bin of %s begins at %s", got.Bin, got.From)
	}
	if n := testing.AllocsPerRun(100, func() {
		h.Add(at(700), time.Millisecond, true)
		h.Judged(at(700), health.StateHealthy)
	}); n > 0 {
		t.Errorf("remembering a relist allocates %v times", n)
	}
}
