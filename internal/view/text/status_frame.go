package text

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view"
)

// minWidth is the narrowest terminal that the frame is made for.
const minWidth = 40

// FrameOptions are the terminal that a frame is made for.
type FrameOptions struct {
	Color bool
	// Width and Height are the terminal's; 0 means not known.
	Width, Height int
}

// StatusFrame is the status for a terminal that is redrawn: the lines of one
// screen, none wider than it. What does not fit is cut off below, where the least
// urgent stands. recent are the seconds that relists took, the oldest first; one
// that failed is below 0.
func StatusFrame(d *health.Snapshot, recent []float64, o FrameOptions) []string {
	t := &textWriter{color: o.Color, width: textWidth}
	if o.Width > 0 {
		t.width = max(minWidth, min(o.Width, textWidth))
	}
	head := d.At.UTC().Format(view.WallTime)
	if d.Node != "" {
		head = view.Say(d.Node) + "  " + head
	}
	t.buf.WriteString(t.paint(dim, view.Shorten(head, t.width)) + "\n")
	t.status(d)
	lines := strings.Split(strings.TrimRight(t.buf.String(), "\n"), "\n")
	if spark := t.spark(d, recent); spark != "" {
		// Below the lines about the relist, above those about the runtime.
		for i, l := range lines {
			if strings.Contains(l, "Status") && strings.HasPrefix(strings.TrimPrefix(l, "\x1b["+dim+"m"), "Status") {
				lines = append(lines[:i], append([]string{spark}, lines[i:]...)...)
				break
			}
		}
	}
	for i := range lines {
		lines[i] = cut(lines[i], t.width)
	}
	if o.Height > 2 && len(lines) > o.Height-1 {
		hidden := len(lines) - (o.Height - 2)
		lines = append(lines[:o.Height-2], t.paint(dim, view.Shorten(fmt.Sprintf("... %d more lines: make the window larger", hidden), t.width)))
	}
	return lines
}

// cut shortens a line to at most width columns; an escape sequence takes none.
func cut(line string, width int) string {
	columns, inside := 0, false
	for i, r := range line {
		switch {
		case r == '\x1b':
			inside = true
		case inside:
			inside = r != 'm'
		case columns == width:
			if strings.Contains(line[:i], "\x1b") {
				return line[:i] + "\x1b[0m"
			}
			return line[:i]
		default:
			columns++
		}
	}
	return line
}

// sparks are the heights of the bars, which are eighths of a line.
const sparks = "▁▂▃▄▅▆▇█"

// spark is the latency of the recent relists in one line, on the page's scale; empty
// when there are none.
func (t *textWriter) spark(d *health.Snapshot, recent []float64) string {
	room := t.width - textLabel
	values := recent
	period := d.Facts.Config.RelistPeriod.Seconds()
	if f := d.Facts.Relist.InFlight; f != nil && d.Age(f.Start).Seconds() > period {
		values = append(values[:len(values):len(values)], d.Age(f.Start).Seconds())
	}
	if len(values) == 0 {
		return ""
	}
	values = values[max(0, len(values)-room):]
	bars := []rune(sparks)
	var b strings.Builder
	for _, v := range values {
		s := math.Abs(v)
		bar := string(bars[min(int(view.PlotY(s)/view.PlotHeight*float64(len(bars))), len(bars)-1)])
		switch {
		case v < 0:
			bar = t.paint(red, bar)
		case s > period:
			bar = t.paint(yellow, bar)
		}
		b.WriteString(bar)
	}
	return t.paint(dim, "Relists") + strings.Repeat(" ", textLabel-utf8.RuneCountInString("Relists")) + b.String()
}
