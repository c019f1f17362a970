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
	// bandText is the narrowest band, as a share of the width, that has room for the
	// name of its state.
	bandText = .22
)

// Plot is the relist latency of a stretch of time with the verdicts beneath it,
// ready to be drawn. Positions are shares of its width and height, as in 12.5%.
type Plot struct {
	Bars []PlotBar
	// Lines are the heights of the powers of ten between the edges, Limit that
	// of the threshold.
	Lines []string
	Limit string
	// Labels stand at the powers of ten, the highest first.
	Labels []string
	// Rows are the bands beneath, the first one is the verdict.
	Rows  []PlotRow
	Ticks []PlotTick
	Marks []PlotTick
	// Now is true where the right edge is the present.
	Now bool
	// Summary is the same in words.
	Summary string
}

// PlotBar is the slowest relist of one bin.
type PlotBar struct {
	X, Width, Y, Height string
	Class               string
}

// PlotRow is a row of bands, with what it says in words.
type PlotRow struct {
	Label, Summary string
	Bands          []PlotBand
}

// PlotBand is a stretch of a row.
type PlotBand struct {
	X, Width string
	// Class is the state, Text its name where there is room for it, at Middle.
	Class, Text, Middle string
}

// PlotTick is a moment of the plot: a time of day, or the begin of an incident.
type PlotTick struct{ X, Text string }

// Bar is what stands in one bin of a plot.
type Bar struct {
	Took  time.Duration
	Class string
	State health.State
}

// The classes of bars.
const (
	BarEnded  = "ended"
	BarFailed = "failed"
	BarNow    = "now" // under way
)

// Bars returns a bar for each bin. A relist that took longer than a bin is drawn
// in those that it went through, as old as it was then; inFlight is the age of the
// one under way, 0 for none.
func (r Recent) Bars(inFlight time.Duration) []Bar {
	out := make([]Bar, len(r.Bins))
	grow := func(last int, took time.Duration, class string) {
		for i := last; i >= 0 && took > 0; i-- {
			if took >= out[i].Took {
				out[i].Took, out[i].Class = took, class
			}
			took -= r.Bin
		}
	}
	for i, b := range r.Bins {
		out[i].State = b.State
		switch {
		case b.Failed > 0:
			grow(i, b.Slowest, BarFailed)
		case b.Relists > 0:
			grow(i, b.Slowest, BarEnded)
		}
	}
	grow(len(out)-1, inFlight, BarNow)
	return out
}

// InFlightAge returns how long the relist under way has been so; 0 between two.
func InFlightAge(s *health.Snapshot) time.Duration {
	if f := s.Facts.Relist.InFlight; f != nil {
		return s.Age(f.Start)
	}
	return 0
}

// NewPlot draws the last minutes, with the incidents that were opened in them; nil
// when there is nothing to draw.
func NewPlot(s *health.Snapshot, recent Recent, incidents []incident.Summary) *Plot {
	if len(recent.Bins) == 0 {
		return nil
	}
	spans := make([]span, 0, len(recent.Bins))
	for i, b := range recent.Bins {
		spans = append(spans, span{from: recent.From.Add(time.Duration(i) * recent.Bin), class: string(b.State)})
	}
	p := draw(recent, InFlightAge(s), s.Threshold, row{"Verdict", spans})
	p.Now = true
	for i := range incidents {
		one := &incidents[i]
		opened := one.Opened
		if !one.Began.IsZero() {
			opened = health.Wall(s.At, one.Began)
		}
		if at := recent.share(opened); at >= 0 && at <= 1 {
			p.Marks = append(p.Marks, PlotTick{X: percent(at), Text: Say(one.Reason) + ", opened " + opened.UTC().Format(time.TimeOnly)})
		}
	}
	return p
}

// span is a stretch of a row that lasts until the next one.
type span struct {
	from  time.Time
	class string // empty: nothing is drawn
}

type row struct {
	label string
	spans []span
}

func (r Recent) end() time.Time { return r.From.Add(time.Duration(len(r.Bins)) * r.Bin) }

// share returns where a moment lies between the edges, 0 and 1.
func (r Recent) share(t time.Time) float64 {
	return float64(t.Sub(r.From)) / float64(r.end().Sub(r.From))
}

func draw(r Recent, inFlight, threshold time.Duration, rows ...row) *Plot {
	p := &Plot{Limit: percent(1 - PlotY(threshold.Seconds())), Labels: []string{"1000s", "100s", "10s", "1s", "100ms", "10ms", "1ms"}}
	for i := 1; i < plotDecades; i++ {
		p.Lines = append(p.Lines, percent(float64(i)/plotDecades))
	}
	var ended, failed int
	var slowest time.Duration
	width := 1 / float64(len(r.Bins))
	for i, b := range r.Bars(inFlight) {
		ended += r.Bins[i].Relists
		failed += r.Bins[i].Failed
		slowest = max(slowest, b.Took)
		if b.Class == "" {
			continue
		}
		h := max(PlotY(b.Took.Seconds()), .015)
		p.Bars = append(p.Bars, PlotBar{X: percent(float64(i) * width), Width: percent(width), Y: percent(1 - h), Height: percent(h), Class: b.Class})
	}
	p.Summary = plotSummary(ended, failed, slowest, inFlight)
	for _, row := range rows {
		p.Rows = append(p.Rows, r.bands(row))
	}
	p.Ticks = r.ticks()
	return p
}

// bands joins the spans of a row that are alike, within the edges.
func (r Recent) bands(in row) PlotRow {
	out := PlotRow{Label: in.label}
	total := map[string]time.Duration{}
	var order []string
	for i := 0; i < len(in.spans); {
		from, class := in.spans[i].from, in.spans[i].class
		for i++; i < len(in.spans) && in.spans[i].class == class; i++ {
		}
		to := r.end()
		if i < len(in.spans) {
			to = in.spans[i].from
		}
		x, end := max(0, r.share(from)), min(1, r.share(to))
		if class == "" || end <= x {
			continue
		}
		if total[class] == 0 {
			order = append(order, class)
		}
		total[class] += time.Duration((end - x) * float64(r.end().Sub(r.From)))
		b := PlotBand{X: percent(x), Width: percent(end - x), Middle: percent((x + end) / 2), Class: class}
		if end-x >= bandText {
			b.Text = class
		}
		out.Bands = append(out.Bands, b)
	}
	var parts []string
	for _, class := range order {
		parts = append(parts, class+" for "+Seconds(total[class]))
	}
	out.Summary = in.label + ": " + strings.Join(parts, ", ") + "."
	return out
}

// ticks are round times of day, at most eight.
func (r Recent) ticks() (out []PlotTick) {
	step := 24 * time.Hour
	for _, d := range []time.Duration{
		5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	} {
		if r.end().Sub(r.From) <= 6*d {
			step = d
			break
		}
	}
	layout := "15:04"
	if step < time.Minute {
		layout = time.TimeOnly
	}
	for t := r.From.UTC().Truncate(step); t.Before(r.end()); t = t.Add(step) {
		// Those at the edges would be cut off, and the right one stands where "now" does.
		if at := r.share(t); at > .06 && at < .85 {
			out = append(out, PlotTick{X: percent(at), Text: t.Format(layout)})
		}
	}
	return out
}

// PlotY is the height of a time in the plot, from 0 to 1.
func PlotY(seconds float64) float64 {
	decades := math.Log10(max(seconds, plotBottom) / plotBottom)
	return min(decades/plotDecades, 1)
}

func percent(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) }

func plotSummary(ended, failed int, slowest, inFlight time.Duration) string {
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
