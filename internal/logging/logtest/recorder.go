// Package logtest records logs in tests.
package logtest

import (
	"context"
	"log/slog"
	"strings"
	"sync"
)

// Entry is a logged entry.
type Entry struct {
	Level   slog.Level
	Message string
	Fields  map[string]any
}

// Recorder is a slog.Handler that keeps what is logged.
type Recorder struct {
	slog.Handler

	mu      sync.Mutex
	entries []Entry
}

// New returns a log, and what records the entries of its level and above.
func New(level slog.Level) (*slog.Logger, *Recorder) {
	r := &Recorder{Handler: slog.NewTextHandler(nil, &slog.HandlerOptions{Level: level})}
	return slog.New(r), r
}

// Handle keeps an entry.
func (r *Recorder) Handle(_ context.Context, rec slog.Record) error {
	e := Entry{Level: rec.Level, Message: rec.Message, Fields: map[string]any{}}
	rec.Attrs(func(a slog.Attr) bool {
		e.Fields[a.Key] = a.Value.Any()
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, e)
	return nil
}

// With returns the entries whose message contains a text.
func (r *Recorder) With(text string) []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Entry
	for _, e := range r.entries {
		if strings.Contains(e.Message, text) {
			out = append(out, e)
		}
	}
	return out
}

// All returns all entries.
func (r *Recorder) All() []Entry { return r.With("") }
