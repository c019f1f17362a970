// Package logging writes plegd's log: to the standard error, or into systemd's
// journal. Logging never blocks.
package logging

import (
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/plain"
)

// Formats of a log.
const (
	JSON    = "json"
	Console = "console"
)

// New returns a log that writes lines to w, and a function that waits until they
// are written. What a terminal could take for a command is escaped.
func New(level slog.Level, format string, w io.Writer) (log *slog.Logger, sync func() error) {
	write := func(line []byte) error {
		_, err := w.Write(line)
		return err
	}
	var note strings.Builder
	notes := slog.New(handler(slog.LevelDebug, format, &note)) // used by the queue's goroutine alone
	q := newQueue(write, func(dropped uint64) []byte {
		note.Reset()
		notes.Warn("lines of this log were dropped: nobody read them", "dropped", dropped)
		return []byte(note.String())
	})
	return slog.New(handler(level, format, lines{q})), q.sync
}

// handler returns a handler that writes each entry with one call of Write. Levels
// are lower case, durations seconds.
func handler(level slog.Level, format string, w io.Writer) slog.Handler {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch v := a.Value.Any().(type) {
		case slog.Level:
			a.Value = slog.StringValue(strings.ToLower(v.String()))
		case time.Duration:
			a.Value = slog.Float64Value(v.Seconds())
		}
		return a
	}}
	if format == Console {
		return slog.NewTextHandler(w, opts)
	}
	return slog.NewJSONHandler(w, opts)
}

// lines writes lines into a queue.
type lines struct{ queue *queue[[]byte] }

// Write takes one line. It cannot fail.
func (l lines) Write(line []byte) (int, error) {
	l.queue.put(append([]byte(nil), plain.JSON(line)...)) // line is the caller's again
	return len(line), nil
}
