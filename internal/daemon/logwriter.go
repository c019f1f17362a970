package daemon

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/plain"
)

const (
	// logBacklog is how many lines wait for whoever reads the log.
	logBacklog = 512
	// logSync is how long Sync waits for them.
	logSync = 200 * time.Millisecond
)

// LogWriter is what the log is written to. It never waits: a journal that hangs
// on a full or dead disk must hold up nobody, least of all the supervisor that
// feeds the watchdog. Lines that nobody takes are dropped, and their number is
// said when the log can be written again. What a terminal could take for a
// command is escaped.
type LogWriter struct {
	w       io.Writer
	note    func(dropped uint64) []byte
	lines   chan []byte
	pending atomic.Int64
	dropped atomic.Uint64
}

// NewLogWriter returns a writer to w, and starts what writes there. note makes
// the line that says how many were dropped.
func NewLogWriter(w io.Writer, note func(dropped uint64) []byte) *LogWriter {
	l := &LogWriter{w: w, note: note, lines: make(chan []byte, logBacklog)}
	go l.run()
	return l
}

// Write takes one line. It cannot fail.
func (l *LogWriter) Write(line []byte) (int, error) {
	safe := append([]byte(nil), plain.JSON(line)...) // line is the caller's again
	l.pending.Add(1)
	select {
	case l.lines <- safe:
	default:
		l.pending.Add(-1)
		l.dropped.Add(1)
	}
	return len(line), nil
}

func (l *LogWriter) run() {
	for line := range l.lines {
		// A log that cannot be written cannot be complained of anywhere.
		_, _ = l.w.Write(line)
		if n := l.dropped.Swap(0); n > 0 {
			_, _ = l.w.Write(l.note(n))
		}
		l.pending.Add(-1)
	}
}

// Sync waits until what was written so far is out, or for 200 ms.
func (l *LogWriter) Sync() error {
	for end := time.Now().Add(logSync); l.pending.Load() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return nil
}
