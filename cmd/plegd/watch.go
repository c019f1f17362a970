package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view/text"
)

const (
	// watchPeriod is the time between two looks of status --watch.
	watchPeriod = time.Second
	// watchRecent is how many relists it remembers.
	watchRecent = 200
)

// Escape sequences of a terminal. The alternate screen keeps the first one.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	homeCursor  = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// watcher redraws the status on a terminal. A frame is one write and overwrites
// the one before line by line, so that nothing flickers over a slow connection.
type watcher struct {
	out    *os.File
	fetch  func(context.Context) (*health.Snapshot, error)
	recent []float64
	last   time.Time // start of the last relist in recent
	lines  []string
}

// run redraws until ctx ends, and then leaves the last frame on the screen.
func (w *watcher) run(ctx context.Context) error {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	_, _ = io.WriteString(w.out, enterScreen)
	defer func() { _, _ = io.WriteString(w.out, leaveScreen+strings.Join(w.lines, "\n")+"\n") }()
	for {
		w.draw(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-resized:
		}
	}
}

func (w *watcher) draw(ctx context.Context) {
	width, height := terminalSize(w.out)
	d, err := w.fetch(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		// The last frame stays: it is what was known before plegd went away.
		note := time.Now().UTC().Format(time.TimeOnly) + " UTC: " + err.Error()
		if width > 0 && len(note) > width {
			note = note[:width]
		}
		w.lines = append([]string{note}, w.lines[min(1, len(w.lines)):]...)
	default:
		w.remember(d)
		w.lines = text.StatusFrame(d, w.recent, text.FrameOptions{Color: wantsColor(), Width: width, Height: height})
	}
	_, _ = io.WriteString(w.out, homeCursor+strings.Join(w.lines, clearLine+"\n")+clearLine+clearBelow)
}

// remember keeps what the last relist took.
func (w *watcher) remember(d *health.Snapshot) {
	l := d.Facts.Relist.Last
	if l == nil || !l.Start.After(w.last) {
		return
	}
	w.last = l.Start
	seconds := l.End.Sub(l.Start).Seconds()
	if l.Err != nil {
		seconds = -seconds
	}
	w.recent = append(w.recent, seconds)
	w.recent = w.recent[max(0, len(w.recent)-watchRecent):]
}

// watchPlain shows the status every second until ctx ends, where nothing can be
// redrawn: in a pipe or a file. Before each, head writes what parts it from the
// one before. A daemon that is away for a moment is said so on errs, and asked
// again.
func watchPlain(ctx context.Context, head func(first bool), errs io.Writer, show func() (int, error)) error {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for first := true; ; first = false {
		head(first)
		if _, err := show(); err != nil && ctx.Err() == nil {
			_, _ = fmt.Fprintln(errs, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// textHead writes the time of each status in a line of its own.
func textHead(w io.Writer, now func() time.Time) func(first bool) {
	return func(first bool) {
		if !first {
			_, _ = fmt.Fprintln(w)
		}
		_, _ = fmt.Fprintf(w, "--- %s\n", now().UTC().Format(time.RFC3339))
	}
}

// terminalSize returns the columns and lines of a terminal, 0 when they are not
// known.
func terminalSize(f *os.File) (width, height int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// redraws reports whether w is a terminal on which something can be redrawn.
func redraws(w io.Writer) (*os.File, bool) {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return nil, false
	}
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return f, err == nil
}

// wantsColor reports whether colours are not switched off; see no-color.org.
func wantsColor() bool { return os.Getenv("NO_COLOR") == "" }
