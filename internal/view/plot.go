package view

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
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
	// Marks are the begins of incidents.
	Marks []Rect
	// Summary is the same in words.
	Summary string
}

// Rect is a rectangle or a mark of a plot.
type Rect struct {
	X, Width, Y, Height string
	// Class is a state or a bar's class, Text explains a mark.
	Class, Text string
}

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

// newPlot draws the last minutes, with the incidents that were opened in them; nil
// if there is nothing to draw.
func newPlot(s *health.Snapshot, r Recent, incidents []incident.Summary) *Plot {
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
	var total map[health.State]time.Duration
	p.Verdicts, total = r.verdicts()
	var verdicts []string
	for _, state := range health.States() {
		if total[state] > 0 {
			verdicts = append(verdicts, string(state)+" for "+Seconds(total[state]))
		}
	}
	p.Summary += " Verdict: " + strings.Join(verdicts, ", ") + "."
	for i := range plotTicks - 1 {
		p.Ticks = append(p.Ticks, r.From.Add(length*time.Duration(i)/(plotTicks-1)).UTC().Format("15:04"))
	}
	p.Ticks = append(p.Ticks, "now")
	for i := range incidents {
		one := &incidents[i]
		opened := one.Opened
		if !one.Began.IsZero() {
			opened = health.Wall(s.At, one.Began)
		}
		if at := float64(opened.Sub(r.From)) / float64(length); at >= 0 && at <= 1 {
			text := Say(one.Reason) + ", opened " + opened.UTC().Format(time.TimeOnly)
			p.Marks = append(p.Marks, Rect{X: percent(at), Text: text})
		}
	}
	return p
}

// summary describes the relists.
func (r Recent) summary(inFlight time.Duration) string {
	ended, failed, slowest := 0, 0, inFlight
	for _, b := range r.Bins {
		ended, failed, slowest = ended+b.Relists, failed+b.Failed, max(slowest, b.Slowest)
	}
	out := Count(ended, "relist", "relists") + " ended"
	if failed > 0 {
		out += fmt.Sprintf(", %d of them failed", failed)
	}
	if slowest > 0 {
		out += "; the slowest took " + Seconds(slowest)
	}
	if inFlight > 0 {
		out += "; one is under way for " + Seconds(inFlight)
	}
	return out + "."
}

// verdicts returns the states of the bins, with equal ones joined, and for how long each was so.
func (r Recent) verdicts() (out []Rect, total map[health.State]time.Duration) {
	total = map[health.State]time.Duration{}
	width := 1 / float64(len(r.Bins))
	for i := 0; i < len(r.Bins); {
		first, state := i, r.Bins[i].State
		for ; i < len(r.Bins) && r.Bins[i].State == state; i++ {
			total[state] += r.Bin
		}
		if state != "" {
			x, wide := percent(float64(first)*width), percent(float64(i-first)*width)
			out = append(out, Rect{X: x, Width: wide, Class: string(state)})
		}
	}
	return out, total
}

// height is the height of a duration in the plot, from 0 to 1.
func height(d time.Duration) float64 {
	return min(math.Log10(max(d.Seconds(), plotBottom)/plotBottom)/plotDecades, 1)
}

func percent(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) }
