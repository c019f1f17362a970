package logging

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"go.uber.org/zap"

	"github.com/plegd/plegd/test/must"
)

// slowWriter blocks until free is closed, and then fails fails times.
type slowWriter struct {
	free  chan struct{}
	fails int
	b     bytes.Buffer
}

func (w *slowWriter) Write(b []byte) (int, error) {
	<-w.free
	if w.fails > 0 {
		w.fails--
		return 0, errors.New("no space left on device")
	}
	return w.b.Write(b)
}

// TestLogNeverBlocks: lines beyond the backlog are dropped and counted.
func TestLogNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowWriter{free: make(chan struct{})}
		q := newQueue(w, func(n uint64) error { _, err := fmt.Fprintf(w, "%d dropped\n", n); return err })
		const extra = 100
		for i := range backlog + 1 + extra {
			_, _ = fmt.Fprintf(q, "line %d\n", i)
			if i == 0 {
				synctest.Wait() // the first is being written
			}
		}
		if err := q.Sync(); err == nil {
			t.Error("Sync succeeds while nothing is written")
		}
		close(w.free)
		synctest.Wait()
		must.Do(t, q.Sync())
		close(q.lines)
		synctest.Wait()
		out := w.b.String()
		if !strings.Contains(out, fmt.Sprintf("%d dropped\n", extra)) || strings.Count(out, "\n") != backlog+2 {
			t.Errorf("%d lines: %.100s", strings.Count(out, "\n"), out)
		}
	})
}

// TestFormats: both formats write one line per entry with the same fields,
// durations in seconds, and nothing that a terminal interprets.
func TestFormats(t *testing.T) {
	evil := "[x]\nlevel=error \x1b[2J\u009b31m\u202eabc\xff"
	escaped := `[x]\nlevel=error \u001b[2J\u009b31m\u202eabc\ufffd`
	for format, want := range map[string]string{
		JSON:    `"msg":"a\nb","after":1.5,"message":"` + escaped + `","error":"no","evidence":["x y"]}` + "\n",
		Console: "\ta\\nb\t" + `{"after": 1.5, "message": "` + escaped + `", "error": "no", "evidence": ["x y"]}` + "\n",
	} {
		w := &slowWriter{free: make(chan struct{})}
		close(w.free)
		log := New(zap.InfoLevel, format, w)
		log.Debug("not logged")
		log.Warn("a\nb", zap.Duration("after", 1500*time.Millisecond), zap.String("message", evil),
			zap.Error(errors.New("no")), zap.Strings("evidence", []string{"x y"}))
		must.Do(t, log.Sync())
		got := w.b.String()
		if !strings.HasSuffix(got, want) || !strings.Contains(got, "warn") || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: %q, want %q", format, got, want)
		}
		if strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }) {
			t.Errorf("%s has control characters: %q", format, got)
		}
	}
}

// TestDroppedLinesAreLogged in the format of the log, also after a failed write.
func TestDroppedLinesAreLogged(t *testing.T) {
	w := &slowWriter{free: make(chan struct{}), fails: 2}
	log := New(zap.InfoLevel, JSON, w)
	for range 3 {
		log.Info("line")
	}
	close(w.free)
	must.Do(t, log.Sync())
	if out := w.b.String(); !strings.Contains(out, `"msg":"2 log lines were dropped"}`) || strings.Count(out, "\n") != 2 {
		t.Errorf("%q", out)
	}
}
