package view

import (
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/health"
)

const (
	// historyBin is the time that one bin of the history holds, HistoryBins how
	// many there are: ten minutes, twice as long as the longest hang that the
	// kubelet overlooks.
	historyBin = 5 * time.Second
	// HistoryBins is the number of bins.
	HistoryBins = 120
)

// Recent is what the relists of a stretch of time took and what the verdict was:
// what a plot is drawn from.
type Recent struct {
	// From is when the first bin begins, Bin how long each lasts.
	From time.Time     `json:"from"`
	Bin  time.Duration `json:"bin_seconds"`
	// Bins are in order, the last one is the present.
	Bins []RelistBin `json:"bins"`
}

// RelistBin is what the relists that ended within a bin took, and the worst verdict
// in it. A bin that nobody has seen is empty.
type RelistBin struct {
	// Slowest is the longest of them, failed ones too.
	Slowest time.Duration `json:"slowest_seconds"`
	Relists int           `json:"relists"`
	Failed  int           `json:"failed"`
	State   health.State  `json:"state,omitzero"`
}

// History remembers the relists and verdicts of the last ten minutes. Relists are
// written by the relist loop alone, verdicts by the judge alone; neither waits or
// allocates. A reader may see a bin that is just being emptied as half full: that
// is the oldest one.
type History struct {
	// base is when bin 0 began; it has a monotonic part.
	base time.Time
	bins [HistoryBins]struct {
		number          atomic.Int64 // which bin since base stands here, plus one
		slowest         atomic.Int64 // nanoseconds
		relists, failed atomic.Int64
		// verdict is number*verdictRanks plus the rank of the worst verdict.
		verdict atomic.Int64
	}
}

// verdictRanks is above every rank of a state.
const verdictRanks = 8

// NewHistory returns an empty history that begins at base.
func NewHistory(base time.Time) *History { return &History{base: base} }

func (h *History) number(t time.Time) int64 { return int64(max(0, t.Sub(h.base))/historyBin) + 1 }

// Add adds a relist that ended at now.
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

// Judged adds the verdict of now.
func (h *History) Judged(now time.Time, state health.State) {
	n := h.number(now)
	b := &h.bins[n%HistoryBins]
	b.verdict.Store(max(b.verdict.Load(), n*verdictRanks+int64(state.Rank())))
}

// At returns the bins of the last ten minutes. One in which no relist ended has
// none.
func (h *History) At(now time.Time) Recent {
	last := h.number(now)
	first := last - HistoryBins + 1
	r := Recent{
		From: health.Wall(now, h.base.Add(time.Duration(first-1)*historyBin)), Bin: historyBin,
		Bins: make([]RelistBin, HistoryBins),
	}
	for i := range r.Bins {
		n := first + int64(i)
		if n < 1 {
			continue
		}
		b, out := &h.bins[n%HistoryBins], &r.Bins[i]
		if v := b.verdict.Load(); v/verdictRanks == n {
			out.State = health.StateOfRank(int(v % verdictRanks))
		}
		if b.number.Load() == n {
			out.Slowest, out.Relists, out.Failed = time.Duration(b.slowest.Load()), int(b.relists.Load()), int(b.failed.Load())
		}
	}
	return r
}
