package daemon

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// slowWriter writes nothing until it is let go.
type slowWriter struct {
	free chan struct{}
	b    bytes.Buffer
}

func (w *slowWriter) Write(b []byte) (int, error) {
	<-w.free
	return w.b.Write(b)
}

func noteOf(n uint64) []byte { return fmt.Appendf(nil, "dropped %d\n", n) }

// TestLogWriterNeverWaits: nobody reads the log for a while.
func TestLogWriterNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowWriter{free: make(chan struct{})}
		l := NewLogWriter(w, noteOf)
		const extra = 100
		for i := range logBacklog + 1 + extra {
			if _, err := fmt.Fprintf(l, "line %d\n", i); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				synctest.Wait() // the first is under way
			}
		}
		if err := l.Sync(); err != nil { // it gives up
			t.Fatal(err)
		}
		close(w.free)
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
		close(l.lines)
		synctest.Wait()
		out := w.b.String()
		if !strings.Contains(out, fmt.Sprintf("dropped %d\n", extra)) || strings.Count(out, "\n") != logBacklog+2 {
			t.Errorf("%d lines: %.100s", strings.Count(out, "\n"), out)
		}
	})
}

// TestLogWriterEscapes what a terminal takes for a command, and leaves the rest.
func TestLogWriterEscapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := NewLogWriter(&b, noteOf)
		_, _ = l.Write([]byte("{\"a\":\"\u009b1m \u202e \x7f\xff ä\"}\n"))
		_ = l.Sync()
		close(l.lines)
		synctest.Wait()
		if got, want := b.String(), `{"a":"\u009b1m \u202e \u007f\ufffd ä"}`+"\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
