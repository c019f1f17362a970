package logging

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowWriter writes nothing until free is closed.
type slowWriter struct {
	free chan struct{}
	b    bytes.Buffer
}

func (w *slowWriter) Write(b []byte) (int, error) {
	<-w.free
	return w.b.Write(b)
}

// TestLogNeverWaits: nobody reads the log for a while.
func TestLogNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowWriter{free: make(chan struct{})}
		q := newQueue(func(b []byte) error { _, err := w.Write(b); return err },
			func(n uint64) []byte { return fmt.Appendf(nil, "dropped %d\n", n) })
		const extra = 100
		for i := range backlog + 1 + extra {
			q.put(fmt.Appendf(nil, "line %d\n", i))
			if i == 0 {
				synctest.Wait() // the first is under way
			}
		}
		if err := q.sync(); err == nil {
			t.Error("sync waited until all was written")
		}
		close(w.free)
		synctest.Wait()
		if err := q.sync(); err != nil {
			t.Fatal(err)
		}
		close(q.entries)
		synctest.Wait()
		out := w.b.String()
		if !strings.Contains(out, fmt.Sprintf("dropped %d\n", extra)) || strings.Count(out, "\n") != backlog+2 {
			t.Errorf("%d lines: %.100s", strings.Count(out, "\n"), out)
		}
	})
}

// TestLogWriterEscapes what a terminal takes for a command, and leaves the rest.
func TestLogWriterEscapes(t *testing.T) {
	var b bytes.Buffer
	q := newQueue(func(line []byte) error { _, err := b.Write(line); return err }, func(uint64) []byte { return nil })
	_, _ = lines{q}.Write([]byte("{\"a\":\"\u009b1m \u202e \x7f\xff ä\"}\n"))
	if err := q.sync(); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), `{"a":"\u009b1m \u202e \u007f\ufffd ä"}`+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestFormats: both formats have the same fields, levels in lower case, durations
// in seconds, and one line for each entry whatever its texts are.
func TestFormats(t *testing.T) {
	for format, want := range map[string]string{
		JSON:    `"level":"warn","msg":"a\nb","after":1.5,"error":"no\nmore","evidence":["x y"]}` + "\n",
		Console: `level=warn msg="a\nb" after=1.5 error="no\nmore" evidence="[x y]"` + "\n",
	} {
		var b bytes.Buffer
		log, sync := New(slog.LevelInfo, format, &b)
		log.Debug("not this")
		log.Warn("a\nb", "after", 1500*time.Millisecond, "error", errors.New("no\nmore"), "evidence", []string{"x y"})
		if err := sync(); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 || !strings.Contains(got, "time") {
			t.Errorf("%s: %q, want %q", format, got, want)
		}
	}
}

// TestDroppedLinesAreLogged in the format of the log.
func TestDroppedLinesAreLogged(t *testing.T) {
	w := &slowWriter{free: make(chan struct{})}
	log, sync := New(slog.LevelInfo, JSON, w)
	for range 2 * backlog {
		log.Info("line")
	}
	close(w.free)
	if err := sync(); err != nil {
		t.Fatal(err)
	}
	if out := w.b.String(); !strings.Contains(out, `"level":"warn","msg":"lines of this log were dropped: nobody read them","dropped":`) {
		t.Errorf("%.300s", out)
	}
}

func TestOnChange(t *testing.T) {
	var o OnChange[string]
	for i, step := range []struct {
		set, last string
		changed   bool
	}{
		{"", "", false}, {"a", "", true}, {"a", "a", false}, {"b", "a", true}, {"", "b", true}, {"", "", false},
	} {
		if last, changed := o.Set(step.set); last != step.last || changed != step.changed {
			t.Errorf("step %d: %q, %t; want %q, %t", i, last, changed, step.last, step.changed)
		}
	}
}
