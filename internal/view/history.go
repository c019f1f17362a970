package view

import (
	"sync"
	"time"

	"github.com/plegd/plegd/internal/health"
)

const (
	// historyBin is the length of one bin of the history, HistoryBins their number:
	// ten minutes, twice as long as the longest hang that the kubelet overlooks.
	historyBin = 5 * time.Second
	// HistoryBins is the number of bins.
	HistoryBins = 120
)

// Recent holds the durations of relists and the verdicts of a period, for a plot.
type Recent struct {
	// From is when the first bin begins, Bin how long each lasts.
	From time.Time
	Bin  time.Duration
	// Bins are in order, the last one is the present.
	Bins []RelistBin
}

// RelistBin is the relists that ended within a bin, and the worst verdict in it. A bin
// that was not observed is empty.
type RelistBin struct {
	// Slowest is the longest of them, failed ones too.
	Slowest time.Duration `json:"slowest,omitempty"`
	Relists int           `json:"relists,omitempty"`
	Failed  int           `json:"failed,omitempty"`
	State   health.State  `json:"state,omitempty"`
}

// History holds the relists and verdicts of the last ten minutes.
type History struct {
	// base is when bin 0 began; it has a monotonic part.
	base time.Time

	mu   sync.Mutex
	bins [HistoryBins]numbered
}

// numbered is a bin with its number since base.
type numbered struct {
	number int64
	RelistBin
}

// NewHistory returns an empty history. now is the present.
func NewHistory(now time.Time) *History { return &History{base: now.Add(-HistoryBins * historyBin)} }

func (h *History) number(t time.Time) int64 { return int64(max(0, t.Sub(h.base))/historyBin) + 1 }

// update calls change with the bin of t.
func (h *History) update(t time.Time, change func(*RelistBin)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.number(t)
	b := &h.bins[n%HistoryBins]
	if b.number != n {
		*b = numbered{number: n}
	}
	change(&b.RelistBin)
}

// Add adds a relist that ended at now.
func (h *History) Add(now time.Time, took time.Duration, ok bool) {
	h.update(now, func(b *RelistBin) {
		b.Slowest = max(b.Slowest, took)
		b.Relists++
		if !ok {
			b.Failed++
		}
	})
}

// Judged adds the verdict of now.
func (h *History) Judged(now time.Time, state health.State) {
	h.update(now, func(b *RelistBin) {
		if state.Rank() > b.State.Rank() {
			b.State = state
		}
	})
}

// Restore adds the bins of an earlier process, the last one of which was written at
// written.
func (h *History) Restore(written time.Time, bins []RelistBin) {
	for i, saved := range bins {
		t := written.Add(-time.Duration(len(bins)-1-i) * historyBin)
		if !t.Before(h.base) && saved != (RelistBin{}) {
			h.update(t, func(b *RelistBin) { *b = saved })
		}
	}
}

// At returns the last ten minutes.
func (h *History) At(now time.Time) Recent {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.number(now)
	first := last - HistoryBins + 1
	r := Recent{
		From: health.Wall(now, h.base.Add(time.Duration(first-1)*historyBin)), Bin: historyBin,
		Bins: make([]RelistBin, HistoryBins),
	}
	for i := range r.Bins {
		if n := first + int64(i); n > 0 && h.bins[n%HistoryBins].number == n {
			r.Bins[i] = h.bins[n%HistoryBins].RelistBin
		}
	}
	return r
}
