package text

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view"
)

const (
	// minWidth and minHeight are the smallest terminal that the frame is made for.
	minWidth, minHeight = 40, 6
	// frameHead is how many lines stay above while the rest is scrolled: the node and
	// the verdict.
	frameHead = 2
	// plotLines is the most lines of the plot.
	plotLines = 8
)

// Frame is the status for a terminal that is redrawn: the lines of one screen, none
// wider than it.
type Frame struct {
	Lines []string
	// Scroll is how many lines are hidden above, MaxScroll the most that can be.
	Scroll, MaxScroll int
	// Page is how many lines a page is.
	Page int
}

// FrameOptions are the terminal that a frame is made for.
type FrameOptions struct {
	Color bool
	// Width and Height are the terminal's; 0 means not known.
	Width, Height int
	// Scroll is how many lines to hide above.
	Scroll int
	// Keys is true where keys are read.
	Keys bool
}

// StatusFrame lays the status out in the window that there is, with the recent
// relists and verdicts as a plot. What does not fit is scrolled.
func StatusFrame(d *health.Snapshot, recent view.Recent, o FrameOptions) Frame {
	t := &textWriter{color: o.Color, width: textWidth}
	if o.Width > 0 {
		t.width = max(minWidth, o.Width)
	}
	head := d.At.UTC().Format(view.WallTime)
	if d.Node != "" {
		head = view.Say(d.Node) + "  " + head
	}
	t.buf.WriteString(t.paint(dim, view.Shorten(head, t.width)) + "\n")
	t.verdict(d)
	t.forecast(d)
	plotAt := strings.Count(t.buf.String(), "\n")
	t.state(d)
	t.tables(d)
	lines := strings.Split(strings.TrimRight(t.buf.String(), "\n"), "\n")

	// The plot takes the lines that are left, and three at least.
	height := plotLines
	if o.Height > 0 {
		height = min(max(o.Height-1-len(lines)-3, 1), plotLines)
	}
	lines = slices.Insert(lines, plotAt, t.plot(d, recent, height)...)
	for i := range lines {
		lines[i] = cut(lines[i], t.width)
	}
	f := Frame{Lines: lines}
	if o.Height < minHeight || len(lines) < o.Height {
		return f
	}
	body := o.Height - frameHead - 2 // a line for the keys, and the one that the cursor is on
	f.MaxScroll, f.Page = len(lines)-frameHead-body, body
	f.Scroll = min(max(o.Scroll, 0), f.MaxScroll)
	from := frameHead + f.Scroll
	keys := "make the window larger"
	if o.Keys {
		keys = "q quits, arrows, Page Up and Page Down scroll"
	}
	note := fmt.Sprintf("lines %d to %d of %d; %s", from+1, from+body, len(lines), keys)
	f.Lines = append(append(slices.Clone(lines[:frameHead]), lines[from:from+body]...), t.paint(dim, view.Shorten(note, t.width)))
	return f
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

// blocks are the heights of a bar's top, in eighths of a line.
var blocks = []rune(" ▁▂▃▄▅▆▇█")

// plot draws the last relists as bars, a column each five seconds, on the page's
// scale; beneath them the verdict as a letter, and the time of day. It has height
// lines and two more; none where nothing is known.
func (t *textWriter) plot(d *health.Snapshot, recent view.Recent, height int) []string {
	bars := recent.Bars(view.InFlightAge(d))
	if len(bars) == 0 {
		return nil
	}
	from := max(0, len(bars)-(t.width-textLabel))
	start := recent.From.Add(time.Duration(from) * recent.Bin)
	bars = bars[from:]
	var out []string
	label := func(s string) string {
		return t.paint(dim, s) + strings.Repeat(" ", max(0, textLabel-utf8.RuneCountInString(s)))
	}
	for line := range height {
		title := ""
		if line == 0 {
			title = "Relists"
		}
		out = append(out, label(title)+t.columnsOf(bars, func(b view.Bar) rune {
			if b.Class == "" {
				return ' '
			}
			// Of the bar's height what reaches into this line.
			eighths := max(int(view.PlotY(b.Took.Seconds())*float64(height)*8+.5), 1) - (height-1-line)*8
			return blocks[min(max(eighths, 0), 8)]
		}))
	}
	out = append(out, label("Verdict")+t.columnsOf(bars, func(b view.Bar) rune {
		switch {
		case b.Class == view.BarFailed:
			return 'x'
		case b.State == health.StateUnhealthy:
			return 'U'
		case b.State == health.StateHealthy:
			return '.'
		case b.State == "":
			return ' '
		}
		return rune(b.State[0])
	}))
	times := start.UTC().Format(time.TimeOnly)
	if gap := len(bars) - len(times) - len("now"); gap > 0 {
		times += strings.Repeat(" ", gap) + "now"
	}
	return append(out, label("")+t.paint(dim, times), label("")+t.paint(dim, "5 s a column, 1 ms to 1000 s; d degraded, U unhealthy, s starting, x failed relist"), "")
}

// columnsOf draws a character for each bar in the colour of its verdict.
func (t *textWriter) columnsOf(bars []view.Bar, char func(view.Bar) rune) string {
	var out, run strings.Builder
	for i, b := range bars {
		run.WriteRune(char(b))
		if i+1 == len(bars) || bars[i+1].State != b.State {
			out.WriteString(t.paint(stateColor(b.State), run.String()))
			run.Reset()
		}
	}
	return out.String()
}
