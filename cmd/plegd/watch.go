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
	"golang.org/x/term"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/text"
)

// watchPeriod is the time between two looks of status --watch.
const watchPeriod = time.Second

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
	// in gives the keys; nil, or no terminal: none are read.
	in      *os.File
	out     *os.File
	status  func(context.Context) (*health.Snapshot, error)
	history func(context.Context) (view.Recent, error)

	last   *health.Snapshot
	recent view.Recent
	// failed says why the last question was not answered; what was known before
	// stays on the screen.
	failed string
	frame  text.Frame
	scroll int
}

// run redraws until ctx ends or q is pressed, and then leaves the last frame on the
// screen.
func (w *watcher) run(ctx context.Context) error {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	var keys chan string
	if w.in != nil {
		if before, err := term.MakeRaw(int(w.in.Fd())); err == nil {
			defer func() { _ = term.Restore(int(w.in.Fd()), before) }()
			keys = make(chan string)
			go w.read(ctx, keys)
		}
	}
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	_, _ = io.WriteString(w.out, enterScreen)
	defer func() { _, _ = io.WriteString(w.out, leaveScreen+strings.Join(w.frame.Lines, "\r\n")+"\r\n") }()
	w.ask(ctx)
	for {
		w.draw(keys != nil)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.ask(ctx)
		case <-resized:
		case typed := <-keys:
			for typed != "" {
				var key string
				if key, typed = nextKey(typed); !w.press(key) {
					return nil
				}
			}
		}
	}
}

// read sends what is typed until ctx ends; it stays in its last read, which ends
// with the process.
func (w *watcher) read(ctx context.Context, keys chan<- string) {
	buf := make([]byte, 16)
	for {
		n, err := w.in.Read(buf)
		if err != nil {
			return
		}
		select {
		case keys <- string(buf[:n]):
		case <-ctx.Done():
			return
		}
	}
}

// nextKey splits the first key off what was typed: a character or an escape
// sequence.
func nextKey(typed string) (key, rest string) {
	if strings.HasPrefix(typed, "\x1b[") || strings.HasPrefix(typed, "\x1bO") {
		if i := strings.IndexFunc(typed[2:], func(r rune) bool { return r >= '@' && r <= '~' }); i >= 0 {
			return typed[:i+3], typed[i+3:]
		}
	}
	return typed[:1], typed[1:]
}

// press scrolls, and reports whether to continue.
func (w *watcher) press(key string) bool {
	switch key {
	case "q", "Q", "\x03", "\x04": // Ctrl-C and Ctrl-D are keys like others here
		return false
	case "j", "\x1b[B", "\x1bOB", "\r":
		w.scroll++
	case "k", "\x1b[A", "\x1bOA":
		w.scroll--
	case " ", "f", "\x1b[6~":
		w.scroll += w.frame.Page
	case "b", "\x1b[5~":
		w.scroll -= w.frame.Page
	case "g", "\x1b[H", "\x1bOH", "\x1b[1~":
		w.scroll = 0
	case "G", "\x1b[F", "\x1bOF", "\x1b[4~":
		w.scroll = w.frame.MaxScroll
	}
	return true
}

// ask takes over what the daemon knows now.
func (w *watcher) ask(ctx context.Context) {
	d, err := w.status(ctx)
	if err == nil {
		w.last, w.failed = d, ""
		w.recent, err = w.history(ctx)
	}
	if err != nil && ctx.Err() == nil {
		w.failed = time.Now().UTC().Format(time.TimeOnly) + " UTC: " + err.Error()
	}
}

// draw writes one frame for the window as it is now.
func (w *watcher) draw(keys bool) {
	width, height := terminalSize(w.out)
	if w.last != nil {
		w.frame = text.StatusFrame(w.last, w.recent, text.FrameOptions{Color: wantsColor(), Width: width, Height: height, Scroll: w.scroll, Keys: keys})
		w.scroll = w.frame.Scroll
	}
	if w.failed != "" {
		note := w.failed
		if width > 0 && len(note) > width {
			note = note[:width]
		}
		w.frame.Lines = append([]string{note}, w.frame.Lines[min(1, len(w.frame.Lines)):]...)
	}
	// Raw mode leaves it to the program to return to the line's begin. A line is cleared
	// before it is written: after one of the whole width its last column would be cleared.
	_, _ = io.WriteString(w.out, homeCursor+clearLine+strings.Join(w.frame.Lines, "\r\n"+clearLine)+"\r\n"+clearBelow)
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
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// terminal returns a stream as a terminal, and whether it is one.
func terminal(stream any) (*os.File, bool) {
	f, ok := stream.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return nil, false
	}
	return f, term.IsTerminal(int(f.Fd()))
}

// wantsColor reports whether colours are not switched off; see no-color.org.
func wantsColor() bool { return os.Getenv("NO_COLOR") == "" }
