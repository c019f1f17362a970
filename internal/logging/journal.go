package logging

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/journal"

	"github.com/plegd/plegd/internal/plain"
)

// JournalAvailable reports whether the standard error is connected to systemd's
// journal, so that what is written there would end up in it as bare text.
func JournalAvailable() bool {
	is, err := journal.StderrIsJournalStream()
	return err == nil && is
}

// NewJournal returns a log that writes into systemd's journal, with one journal
// field for each field of the log, so that
//
//	journalctl -u plegd PLEGD_REASON=RuntimeFrozen
//
// works, and a function that waits until all is written.
func NewJournal(level slog.Level) (log *slog.Logger, sync func() error) {
	h := newJournalHandler(level, journal.Send)
	return slog.New(h), h.queue.sync
}

// journalHandler is the slog.Handler.
type journalHandler struct {
	level slog.Level
	queue *queue[journalEntry]
	attrs []slog.Attr
}

type sendFunc func(message string, p journal.Priority, vars map[string]string) error

type journalEntry struct {
	text     string
	priority journal.Priority
	vars     map[string]string
}

func newJournalHandler(level slog.Level, send sendFunc) *journalHandler {
	write := func(e journalEntry) error { return send(e.text, e.priority, e.vars) }
	return &journalHandler{level: level, queue: newQueue(write, func(dropped uint64) journalEntry {
		text := fmt.Sprintf("%d lines of the log are missing here: the journal did not take them", dropped)
		return journalEntry{text: text, priority: journal.PriWarning, vars: map[string]string{"SYSLOG_IDENTIFIER": "plegd"}}
	})}
}

// Enabled reports whether entries of a level are written.
func (h *journalHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// WithAttrs returns a handler whose entries all have these fields.
func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &journalHandler{level: h.level, queue: h.queue, attrs: append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// WithGroup returns the handler as it is: plegd's log has no groups.
func (h *journalHandler) WithGroup(string) slog.Handler { return h }

// Handle queues an entry and returns nil.
func (h *journalHandler) Handle(_ context.Context, r slog.Record) error {
	vars := map[string]string{"SYSLOG_IDENTIFIER": "plegd"}
	var text strings.Builder
	text.WriteString(r.Message)
	sep := ": "
	field := func(a slog.Attr) bool {
		value := a.Value.Resolve().Any()
		v := format(value)
		vars[fieldName(a.Key)] = v
		switch value.(type) {
		case string, error:
			v = quoted(v)
		default:
			v = string(plain.JSON([]byte(v)))
		}
		text.WriteString(sep + a.Key + "=" + v)
		sep = " "
		return true
	}
	for _, a := range h.attrs {
		field(a)
	}
	r.Attrs(field)
	h.queue.put(journalEntry{text: text.String(), priority: priority(r.Level), vars: vars})
	return nil
}

func priority(l slog.Level) journal.Priority {
	switch {
	case l < slog.LevelInfo:
		return journal.PriDebug
	case l < slog.LevelWarn:
		return journal.PriInfo
	case l < slog.LevelError:
		return journal.PriWarning
	}
	return journal.PriErr
}

// fieldName returns the name of a field in the journal: at most 64 capitals,
// digits and _.
func fieldName(key string) string {
	name := "PLEGD_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
	return name[:min(len(name), 64)]
}

// format formats a value: text as it is, times in RFC 3339, lists as JSON.
func format(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case time.Duration:
		return v.String()
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case error:
		return v.Error()
	case fmt.Stringer:
		return v.String()
	}
	if b, err := json.Marshal(v); err == nil {
		return string(b)
	}
	return fmt.Sprint(v)
}

// quoted returns a text for the line, in quotes if it is not one word: nothing that
// a runtime sends can look like another field or another line.
func quoted(v string) string {
	if v == "" || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r == '"' || r == '=' || r == 0x7f || !strconv.IsPrint(r) }) {
		return strconv.Quote(v)
	}
	return v
}
