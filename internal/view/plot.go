package view

import (
	"fmt"
	"math"
	"time"

	"github.com/plegd/plegd/internal/health"
)

const (
	// plotBottom is the time, in seconds, at the plot's lower edge. Its scale is
	// logarithmic: a good relist takes milliseconds and a hang minutes.
	plotBottom = .001
	// plotDecades is how many powers of ten lie between its edges.
	plotDecades = 6
	// plotTicks is how many times of day stand below it.
	plotTicks = 5
)

// Plot is the relist latency of a period with the verdicts beneath it, ready to be drawn.
// Positions are shares of its width and height, as in 12.5%.
type Plot struct {
	Bars []Rect
	// Limit is the height of the threshold.
	Limit string
	// Verdicts are the states beneath.
	Verdicts []Rect
	// Ticks are times of day, evenly spaced from edge to edge.
	Ticks []string
	// Summary is the same in words.
	Summary string
}

// Rect is a rectangle of a plot. Class is a state or a bar's class.
type Rect struct{ X, Width, Y, Height, Class string }

// The classes of bars. A bar of barNow is under way.
const (
	barEnded  = "ended"
	barFailed = "failed"
	barNow    = "now"
)

// bar is the slowest relist in one bin.
type bar struct {
	took  time.Duration
	class string
}

// bars returns a bar for each bin. A relist that took longer than a bin is drawn in each
// bin that it covers, with its age at that time; inFlight is the age of the one under way.
func (r Recent) bars(inFlight time.Duration) []bar {
	out := make([]bar, len(r.Bins))
	grow := func(last int, took time.Duration, class string) {
		for i := last; i >= 0 && took > 0; i-- {
			if took >= out[i].took {
				out[i] = bar{took, class}
			}
			took -= r.Bin
		}
	}
	for i, b := range r.Bins {
		switch {
		case b.Failed > 0:
			grow(i, b.Slowest, barFailed)
		case b.Relists > 0:
			grow(i, b.Slowest, barEnded)
		}
	}
	grow(len(out)-1, inFlight, barNow)
	return out
}

// newPlot draws the last minutes; nil if there is nothing to draw.
func newPlot(s *health.Snapshot, r Recent) *Plot {
	if len(r.Bins) == 0 {
		return nil
	}
	var inFlight time.Duration
	if f := s.Facts.Relist.InFlight; f != nil {
		inFlight = s.Age(f.Start)
	}
	length := time.Duration(len(r.Bins)) * r.Bin
	p := &Plot{Limit: percent(1 - height(s.Threshold)), Summary: r.summary(inFlight)}
	for i, b := range r.bars(inFlight) {
		if b.class != "" {
			h, width := max(height(b.took), .015), 1/float64(len(r.Bins))
			x := percent(float64(i) * width)
			p.Bars = append(p.Bars, Rect{X: x, Width: percent(width), Y: percent(1 - h), Height: percent(h), Class: b.class})
		}
	}
	p.Verdicts = r.verdicts()
	for i := range plotTicks - 1 {
		p.Ticks = append(p.Ticks, r.From.Add(length*time.Duration(i)/(plotTicks-1)).UTC().Format("15:04"))
	}
	p.Ticks = append(p.Ticks, "now")
	return p
}

// summary describes the relists.
func (r Recent) summary(inFlight time.Duration) string {
	ended, failed, slowest := 0, 0, inFlight
	for _, b := range r.Bins {
		ended, failed, slowest = ended+b.Relists, failed+b.Failed, max(slowest, b.Slowest)
	}
	out := health.Count(ended, "relist", "relists") + " ended"
	if failed > 0 {
		out += fmt.Sprintf(", %d of them failed", failed)
	}
	if slowest > 0 {
		out += "; the slowest took " + health.Seconds(slowest)
	}
	if inFlight > 0 {
		out += "; one is under way for " + health.Seconds(inFlight)
	}
	return out + "."
}

// verdicts returns the states of the bins, with equal ones joined.
func (r Recent) verdicts() (out []Rect) {
	for i, b := range r.Bins {
		width := 1 / float64(len(r.Bins))
		same := 1
		for i+same < len(r.Bins) && r.Bins[i+same].State == b.State {
			same++
		}
		if b.State != "" && (i == 0 || r.Bins[i-1].State != b.State) {
			out = append(out, Rect{
				X: percent(float64(i) * width), Width: percent(float64(same) * width), Class: string(b.State),
			})
		}
	}
	return out
}

// height is the height of a duration in the plot, from 0 to 1.
func height(d time.Duration) float64 {
	return min(math.Log10(max(d.Seconds(), plotBottom)/plotBottom)/plotDecades, 1)
}

func percent(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) }
