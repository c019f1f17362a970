package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// watchPeriod is the interval of status --watch.
const watchPeriod = time.Second

// clearScreen moves a terminal's cursor home and clears below it.
const clearScreen = "\x1b[H\x1b[J"

// watch prints the status every second until ctx is done. An error is printed in
// its place, and the next attempt follows.
func watch(ctx context.Context, out io.Writer, head func() string, show func() error) error {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		_, _ = io.WriteString(out, head())
		if err := show(); err != nil && ctx.Err() == nil {
			_, _ = fmt.Fprintln(out, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// watchHead returns what separates two prints: a cleared screen on a terminal,
// the time elsewhere.
func watchHead(out io.Writer) func() string {
	if _, ok := terminal(out); ok {
		return func() string { return clearScreen }
	}
	return func() string { return "--- " + time.Now().UTC().Format(time.RFC3339) + "\n" }
}

// terminal returns a stream as a terminal, and whether it is one.
func terminal(stream any) (*os.File, bool) {
	f, ok := stream.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return nil, false
	}
	return f, term.IsTerminal(int(f.Fd()))
}

// isTerminal reports whether w is a terminal that shows colors (no-color.org).
func isTerminal(w io.Writer) bool {
	_, ok := terminal(w)
	return ok && os.Getenv("NO_COLOR") == ""
}
