package exporter

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHistory(t *testing.T) {
	h := newHistory(t0)
	at := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	if got := h.at(at(0)); len(got) != historyBins || got[historyBins-1] != (RelistBin{}) {
		t.Errorf("a new history is not empty: %v", got)
	}
	h.add(at(1), time.Millisecond, true)
	h.add(at(2), 7*time.Millisecond, true)
	h.add(at(3), 2*time.Millisecond, false)
	h.add(at(11), time.Second, true)
	last := func(now float64, n int) []RelistBin { return h.at(at(now))[historyBins-n:] }
	want := []RelistBin{{}, {Slowest: 7 * time.Millisecond, Relists: 3, Failed: 1}, {}, {Slowest: time.Second, Relists: 1}}
	if diff := cmp.Diff(want, last(12, 4)); diff != "" {
		t.Error(diff)
	}
	// Ten minutes later the old ones are gone, and their places are used again.
	h.add(at(601), 3*time.Millisecond, true)
	if diff := cmp.Diff([]RelistBin{{Slowest: 3 * time.Millisecond, Relists: 1}}, last(602, 1)); diff != "" {
		t.Error(diff)
	}
	if first := h.at(at(602))[0]; first != (RelistBin{}) {
		t.Errorf("a bin of ten minutes ago is still there: %v", first)
	}
	if n := testing.AllocsPerRun(100, func() { h.add(at(700), time.Millisecond, true) }); n > 0 {
		t.Errorf("remembering a relist allocates %v times", n)
	}
}
