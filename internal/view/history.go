package view

import (
	"sync/atomic"
	"time"
)

const (
	// historyBin is the time that one bin of the history holds, HistoryBins how
	// many there are: ten minutes, twice as long as the longest hang that the
	// kubelet overlooks.
	historyBin = 5 * time.Second
	// HistoryBins is the number of bins.
	HistoryBins = 120
)

// RelistBin is what the relists that ended within five seconds took.
type RelistBin struct {
	// Slowest is the longest of them, failed ones too.
	Slowest         time.Duration
	Relists, Failed int
}

// History remembers the relists of the last ten minutes for the page's plot. It
// is written by the relist loop alone, which it never holds up nor makes
// allocate. A reader may see a bin that is just being emptied as half full: that
// is the oldest one.
type History struct {
	// base is when bin 0 began; it has a monotonic part.
	base time.Time
	bins [HistoryBins]struct {
		number          atomic.Int64 // which bin since base stands here, plus one
		slowest         atomic.Int64 // nanoseconds
		relists, failed atomic.Int64
	}
}

// NewHistory returns an empty history that begins at base.
func NewHistory(base time.Time) *History { return &History{base: base} }

func (h *History) number(t time.Time) int64 { return int64(max(0, t.Sub(h.base))/historyBin) + 1 }

// Add is told of a relist that ended at now.
func (h *History) Add(now time.Time, took time.Duration, ok bool) {
	n := h.number(now)
	b := &h.bins[n%HistoryBins]
	if b.number.Load() != n {
		b.slowest.Store(0)
		b.relists.Store(0)
		b.failed.Store(0)
		b.number.Store(n)
	}
	if took.Nanoseconds() > b.slowest.Load() {
		b.slowest.Store(took.Nanoseconds())
	}
	b.relists.Add(1)
	if !ok {
		b.failed.Add(1)
	}
}

// At returns the bins of the last ten minutes, the oldest first, the present
// one last. One in which no relist ended is empty.
func (h *History) At(now time.Time) []RelistBin {
	out := make([]RelistBin, HistoryBins)
	last := h.number(now)
	for i := range out {
		n := last - int64(HistoryBins-1-i)
		if n < 1 {
			continue
		}
		if b := &h.bins[n%HistoryBins]; b.number.Load() == n {
			out[i] = RelistBin{Slowest: time.Duration(b.slowest.Load()), Relists: int(b.relists.Load()), Failed: int(b.failed.Load())}
		}
	}
	return out
}
