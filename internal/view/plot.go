package view

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/plegd/plegd/internal/health"
)

const (
	// plotBottom is the time, in seconds, at the plot's lower edge. Its scale is
	// logarithmic: a good relist takes milliseconds and a hang minutes.
	plotBottom = .001
	// plotDecades is how many powers of ten lie between its edges.
	plotDecades = 6
	// PlotHeight is its height in its own units; a bin is one unit wide.
	PlotHeight = 60.
)

// Plot is the relist latency of the last minutes, ready to be drawn.
type Plot struct {
	Width, Height int
	Bars          []plotBar
	// Lines are the heights of the powers of ten between the edges, Limit that
	// of the threshold.
	Lines []string
	Limit string
	// Labels stand at the powers of ten, the highest first.
	Labels []string
	// Summary is the same in words.
	Summary string
	// From says how old its left edge is: historyBin times historyBins.
	From string
}

// plotBar is the slowest relist of one bin. Class is ok, slow, bad for a failed
// one, now for the one under way.
type plotBar struct {
	X         int
	Y, Height string
	Class     string
}

// NewPlot draws the bins; nil when there is nothing to draw.
func NewPlot(s *health.Snapshot, recent []RelistBin) *Plot {
	bins := len(recent)
	if bins == 0 {
		return nil
	}
	p := &Plot{
		Width: bins, Height: PlotHeight, Limit: coordinate(PlotHeight - PlotY(s.Threshold.Seconds())),
		Labels: []string{"1000s", "100s", "10s", "1s", "100ms", "10ms", "1ms"},
		From:   "10 minutes ago",
	}
	for i := 1; i < plotDecades; i++ {
		p.Lines = append(p.Lines, coordinate(PlotHeight/plotDecades*float64(i)))
	}
	seconds, class := make([]float64, bins), make([]string, bins)
	// grow draws a relist that took long into the bins that it went through, as
	// old as it was then.
	grow := func(last int, s float64, c string) {
		for i := last; i >= 0 && s > 0; i-- {
			if s >= seconds[i] {
				seconds[i], class[i] = s, c
			}
			s -= historyBin.Seconds()
		}
	}
	var ended, failed int
	for i, b := range recent {
		ended += b.Relists
		failed += b.Failed
		if b.Relists == 0 {
			continue
		}
		took := b.Slowest.Seconds()
		switch {
		case b.Failed > 0:
			grow(i, took, "bad")
		case b.Slowest > s.Facts.Config.RelistPeriod:
			grow(i, took, "slow")
		default:
			grow(i, took, "ok")
		}
	}
	if f := s.Facts.Relist.InFlight; f != nil {
		grow(bins-1, s.Age(f.Start).Seconds(), "now")
	}
	for i, took := range seconds {
		if class[i] == "" {
			continue
		}
		h := max(PlotY(took), 1)
		p.Bars = append(p.Bars, plotBar{X: i, Y: coordinate(PlotHeight - h), Height: coordinate(h), Class: class[i]})
	}
	p.Summary = plotSummary(s, ended, failed, slices.Max(seconds))
	return p
}

// PlotY is the height of a time in the plot.
func PlotY(seconds float64) float64 {
	decades := math.Log10(max(seconds, plotBottom) / plotBottom)
	return PlotHeight * min(decades/plotDecades, 1)
}

func coordinate(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

func plotSummary(s *health.Snapshot, ended, failed int, slowest float64) string {
	out := Count(ended, "relist", "relists") + " ended"
	if failed > 0 {
		out += fmt.Sprintf(", %d of them failed", failed)
	}
	if slowest > 0 {
		out += "; the slowest took " + Seconds(time.Duration(slowest*float64(time.Second)))
	}
	if f := s.Facts.Relist.InFlight; f != nil {
		out += "; one is under way for " + Seconds(s.Age(f.Start))
	}
	return out + "."
}
