package view

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// HistoryBins is the number of bins of the history: ten minutes, twice as long as the
// longest hang that the kubelet overlooks. historyBin is the length of one.
const (
	HistoryBins = 120
	historyBin  = 5 * time.Second
)

// RelistBin is the relists that ended within a bin, and the worst verdict in it. A bin
// that was not observed is empty.
type RelistBin struct {
	// Slowest is the longest of them, failed ones too.
	Slowest time.Duration `json:"slowest,omitempty"`
	Relists int           `json:"relists,omitempty"`
	Failed  int           `json:"failed,omitempty"`
	State   facts.State   `json:"state,omitempty"`
}

// History holds the relists and verdicts of the last ten minutes.
type History struct {
	base time.Time // when bin 0 began, with its monotonic reading

	mu   sync.Mutex
	last int // the number of the last bin
	bins [HistoryBins]RelistBin
}

// NewHistory returns an empty history, whose first bin begins at start.
func NewHistory(start time.Time) *History { return &History{base: start} }

// bin returns the bin of t. It drops the bins that are too old by then.
func (h *History) bin(t time.Time) *RelistBin {
	n := int(math.Floor(float64(t.Sub(h.base)) / float64(historyBin)))
	for ; h.last < n; h.last++ {
		copy(h.bins[:], h.bins[1:])
		h.bins[HistoryBins-1] = RelistBin{}
	}
	return &h.bins[max(0, HistoryBins-1-(h.last-n))]
}

// Add adds a relist that ended at end.
func (h *History) Add(end time.Time, took time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.bin(end)
	b.Slowest = max(b.Slowest, took)
	b.Relists++
	if !ok {
		b.Failed++
	}
}

// Judged adds the verdict of a moment.
func (h *History) Judged(moment time.Time, state facts.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.bin(moment)
	if state.Rank() > b.State.Rank() {
		b.State = state
	}
}

// Restore adds the bins of an earlier process, the last one of which was written at
// written.
func (h *History) Restore(written time.Time, bins []RelistBin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, b := range bins {
		t := written.Add(-time.Duration(len(bins)-1-i) * historyBin)
		if age := h.base.Sub(t); age >= 0 && age < (HistoryBins-1)*historyBin {
			*h.bin(t) = b
		}
	}
}

// Bins returns the bins of the ten minutes that end at a moment.
func (h *History) Bins(end time.Time) []RelistBin {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bin(end)
	return slices.Clone(h.bins[:])
}

// plotDecades is how many powers of ten lie between the plot's lower edge, 1 ms, and its
// upper one: a good relist takes milliseconds and a hang minutes.
const plotDecades = 6

// Plot is the relist latency of the last minutes with the verdicts beneath it, ready to be
// drawn. Limit is where the threshold is, in decades from the top.
type Plot struct {
	Bars  []Bar
	Limit float64
	Ticks []string // times of day, evenly spaced from edge to edge
	// Summary is the same in words.
	Summary string
}

// Bar is the slowest relist in one bin, with its top and height in decades, and the bin's
// verdict. Class is ended, failed or now, which is under way, and empty without a relist.
type Bar struct {
	Top, Height float64
	Class       string
	State       facts.State
	took        time.Duration
}

// newPlot draws the last minutes; nil if there is nothing to draw. A relist that took longer
// than a bin is drawn in each bin that it covers, with its age at that time.
func newPlot(s *facts.Snapshot, bins []RelistBin) *Plot {
	if len(bins) == 0 {
		return nil
	}
	p := &Plot{Bars: make([]Bar, len(bins)), Limit: plotDecades - decades(s.Threshold)}
	grow := func(last int, took time.Duration, class string) {
		for i := last; i >= 0 && took > 0; i-- {
			b := &p.Bars[i]
			if took >= b.took {
				b.took = took
				b.Class = class
				b.Height = decades(took)
				b.Top = plotDecades - b.Height
			}
			took -= historyBin
		}
	}
	var finished, failed int
	var slowest, inFlight time.Duration
	if f := s.Facts.Relist.InFlight; f != nil {
		inFlight = s.Age(f.Start)
	}
	for i, b := range bins {
		class := "ended"
		if b.Failed > 0 {
			class = "failed"
		}
		p.Bars[i].State = b.State
		grow(i, b.Slowest, class)
		finished += b.Relists
		failed += b.Failed
		slowest = max(slowest, b.Slowest)
	}
	grow(len(bins)-1, inFlight, "now")
	for left := 10 * time.Minute; left > 0; left -= 10 * time.Minute / 4 {
		p.Ticks = append(p.Ticks, s.At.Add(-left).UTC().Format("15:04"))
	}
	p.Ticks = append(p.Ticks, "now")
	p.Summary = fmt.Sprintf("%s ended, %d of them failed; the slowest took %s", facts.Count(finished, "relist", "relists"),
		failed, facts.Seconds(max(slowest, inFlight)))
	if inFlight > 0 {
		p.Summary += "; one is under way for " + facts.Seconds(inFlight)
	}
	return p
}

// decades is the height of a duration in the plot.
func decades(d time.Duration) float64 {
	return min(max(math.Log10(d.Seconds()/.001), .1), plotDecades)
}
