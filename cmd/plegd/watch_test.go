package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/viewtest"
)

// openTerminal returns both ends of a pseudo terminal of a size.
func openTerminal(t *testing.T, columns, rows uint16) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("SKIPPED: no pseudo terminals here: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skipf("SKIPPED: no pseudo terminals here: %v", err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("SKIPPED: no pseudo terminals here: %v", err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// TestWatch draws two frames and a failure on a real terminal.
func TestWatch(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	master, slave := openTerminal(t, 60, 20)
	if _, ok := terminal(slave); !ok {
		t.Fatal("a terminal is said to be none")
	}
	if w, h := terminalSize(slave); w != 60 || h != 20 {
		t.Fatalf("the terminal is said to be %d by %d", w, h)
	}
	out := make(chan string, 1)
	go func() {
		var all strings.Builder
		buf := make([]byte, 4096)
		for !strings.HasSuffix(all.String(), "end\r\n") {
			n, err := master.Read(buf)
			all.Write(buf[:n])
			if err != nil {
				break
			}
		}
		out <- all.String()
	}()
	ctx, cancel := context.WithCancel(t.Context())
	frames := 0
	w := &watcher{out: slave, status: func(context.Context) (*health.Snapshot, error) {
		frames++
		switch frames {
		case 1:
			return &health.Snapshot{
				At: time.Unix(100, 0), Node: "worker-7",
				Verdict: health.Verdict{State: health.StateHealthy, Predicted: health.Predicted{RulesOK: true, NodeReady: true}},
			}, nil
		case 2:
			return nil, errors.New("asking plegd: nobody is there")
		default:
			cancel()
			return nil, ctx.Err()
		}
	}, history: func(context.Context) (view.Recent, error) {
		// From before the watch began.
		return view.Recent{From: time.Unix(95, 0), Bin: 5 * time.Second, Bins: []view.RelistBin{{Slowest: 2 * time.Millisecond, Relists: 5, State: health.StateHealthy}}}, nil
	}}
	if err := w.run(ctx); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(slave, "end\n")
	got := <-out
	for _, want := range []string{
		enterScreen + homeCursor + clearLine, "worker-7", "\x1b[1;32mHEALTHY", "▂", clearBelow + homeCursor, "asking plegd: nobody is there", clearBelow + leaveScreen,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	// The last that was known stays below the failure, and on the screen at the end.
	if _, after, _ := strings.Cut(got, leaveScreen); !strings.Contains(after, "nobody is there") || !strings.Contains(after, "HEALTHY") {
		t.Errorf("what stays on the screen is %q", after)
	}
	if strings.Contains(got, "\x1b[2J") {
		t.Error("the screen is cleared between two frames: it flickers")
	}
}

// TestWatchKeys scrolls, and leaves with q: the terminal is as it was before.
func TestWatchKeys(t *testing.T) {
	t.Setenv("TERM", "xterm")
	master, slave := openTerminal(t, 80, 24)
	before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	// What is drawn is read until the frame after the keys has come.
	drawn := make(chan string)
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := master.Read(buf)
			if err != nil {
				return
			}
			drawn <- string(buf[:n])
		}
	}()
	await := func(want string) {
		t.Helper()
		var all string
		for end := time.After(20 * time.Second); !strings.Contains(all, want); {
			select {
			case s := <-drawn:
				all += s
			case <-end:
				t.Fatalf("no %q in %q", want, all)
			}
		}
	}
	w := &watcher{in: slave, out: slave,
		status:  func(context.Context) (*health.Snapshot, error) { return new(viewtest.Degraded()), nil },
		history: func(context.Context) (view.Recent, error) { return viewtest.Recent(new(viewtest.Degraded())), nil },
	}
	ended := make(chan error, 1)
	go func() { ended <- w.run(t.Context()) }()
	await("lines 3 to 22 of")
	_, _ = io.WriteString(master, "j\x1b[B\x1bOB")
	await("lines 6 to 25 of")
	_, _ = io.WriteString(master, "\x1b[6~k")
	await("lines 25 to 44 of")
	_, _ = io.WriteString(master, "gG")
	await("coredns")
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 132, Row: 40}); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(master, "g")
	await("lines 3 to 38 of")
	_, _ = io.WriteString(master, "q")
	await(leaveScreen)
	go func() {
		for range drawn { // what remains
		}
	}()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal was %+v and is %+v (%v)", before, after, err)
	}
}

// TestWatchPiped: nothing is redrawn in a pipe.
func TestWatchPiped(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	if _, ok := terminal(w); ok {
		t.Error("a pipe is said to be a terminal")
	}
	if _, ok := terminal(&strings.Builder{}); ok {
		t.Error("a string is said to be a terminal")
	}
	t.Setenv("TERM", "dumb")
	if _, slave := openTerminal(t, 80, 24); slave != nil {
		if _, ok := terminal(slave); ok {
			t.Error("a dumb terminal is said to be able to redraw")
		}
	}
}

// TestWatchPlain: what is shown every second is told apart by its time, and a
// daemon that is away does not end it.
func TestWatchPlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var out strings.Builder
		shown := 0
		err := watchPlain(ctx, textHead(&out, time.Now), &out, func() (int, error) {
			shown++
			switch shown {
			case 2:
				return exitUnknown, errors.New("asking plegd: nobody is there")
			case 3:
				cancel()
			}
			_, _ = io.WriteString(&out, "HEALTHY\n")
			return exitHealthy, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := "--- 2000-01-01T00:00:00Z\nHEALTHY\n\n--- 2000-01-01T00:00:01Z\nasking plegd: nobody is there\n\n--- 2000-01-01T00:00:02Z\nHEALTHY\n"
		if out.String() != want {
			t.Errorf("got\n%s\nwant\n%s", &out, want)
		}
	})
}
