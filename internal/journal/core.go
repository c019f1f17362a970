// Package journal writes plegd's log into systemd's journal with one journal
// field for each field of the log, so that
//
//	journalctl -u plegd PLEGD_REASON=RuntimeFrozen
//
// finds what a person looks for. It may hold up nobody: a journald that does
// not read is a thing that happens to a node in trouble, and costs log lines
// here, never time.
package journal

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	sdjournal "github.com/coreos/go-systemd/v22/journal"
	"go.uber.org/zap/zapcore"

	"github.com/plegd/plegd/internal/plain"
)

const (
	// prefix begins the name of every field of plegd's own, apart from the
	// journal's well-known ones.
	prefix = "PLEGD_"
	// backlog is how many lines wait for a journald that does not read. plegd
	// is quiet: this is hours of them.
	backlog = 256
	// syncLimit is how long Sync waits for them at plegd's end.
	syncLimit = 200 * time.Millisecond
)

// Available tells whether the standard error is the journal's: whether what is
// written there would end up in it as bare text.
func Available() bool {
	is, err := sdjournal.StderrIsJournalStream()
	return err == nil && is
}

// Core is a zapcore.Core that writes into the journal.
type Core struct {
	zapcore.LevelEnabler
	out  *sender
	with []zapcore.Field
}

// NewCore returns a core for entries of a level and above. It has a goroutine
// that lives as long as the process.
func NewCore(level zapcore.LevelEnabler) *Core { return newCore(level, sdjournal.Send) }

func newCore(level zapcore.LevelEnabler, send sendFunc) *Core {
	s := &sender{send: send, lines: make(chan line, backlog)}
	go s.run()
	return &Core{LevelEnabler: level, out: s}
}

// With returns a core whose entries all have these fields.
func (c *Core) With(fields []zapcore.Field) zapcore.Core {
	with := append(c.with[:len(c.with):len(c.with)], fields...)
	return &Core{LevelEnabler: c.LevelEnabler, out: c.out, with: with}
}

// Check adds the core to an entry that it is to write.
func (c *Core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write hands an entry on and returns at once, always nil: when too many wait
// already, this one is dropped and counted.
func (c *Core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	vars := map[string]string{"SYSLOG_IDENTIFIER": "plegd"}
	var text strings.Builder
	text.WriteString(e.Message)
	sep := ": "
	for _, f := range append(c.with[:len(c.with):len(c.with)], fields...) {
		enc := zapcore.NewMapObjectEncoder()
		f.AddTo(enc)
		value, ok := enc.Fields[f.Key]
		if !ok { // skipped, or inlined
			continue
		}
		v := format(value)
		vars[fieldName(f.Key)] = v
		if _, isText := value.(string); isText {
			v = quoted(v)
		} else {
			v = string(plain.JSON([]byte(v)))
		}
		text.WriteString(sep + f.Key + "=" + v)
		sep = " "
	}
	c.out.put(line{text: text.String(), priority: priority(e.Level), vars: vars})
	return nil
}

// Sync waits for a moment until what was written is in the journal.
func (c *Core) Sync() error {
	done := make(chan struct{})
	limit := time.NewTimer(syncLimit)
	defer limit.Stop()
	select {
	case c.out.lines <- line{done: done}:
	case <-limit.C:
		return fmt.Errorf("write the last lines of the log: the journal has not taken them within %s", syncLimit)
	}
	select {
	case <-done:
		return nil
	case <-limit.C:
		return fmt.Errorf("write the last lines of the log: the journal has not taken them within %s", syncLimit)
	}
}

type sendFunc func(message string, p sdjournal.Priority, vars map[string]string) error

// line is one entry, or a mark that closes done when all before it are written.
type line struct {
	text     string
	priority sdjournal.Priority
	vars     map[string]string
	done     chan struct{}
}

type sender struct {
	send    sendFunc
	lines   chan line
	dropped atomic.Uint64
}

func (s *sender) put(l line) {
	select {
	case s.lines <- l:
	default:
		s.dropped.Add(1)
	}
}

func (s *sender) run() {
	for l := range s.lines {
		if l.done != nil {
			close(l.done)
			continue
		}
		if s.send(l.text, l.priority, l.vars) != nil {
			s.dropped.Add(1)
			continue
		}
		if n := s.dropped.Swap(0); n > 0 {
			text := fmt.Sprintf("%d lines of the log are missing here: the journal did not take them", n)
			if s.send(text, sdjournal.PriWarning, map[string]string{"SYSLOG_IDENTIFIER": "plegd"}) != nil {
				s.dropped.Add(n)
			}
		}
	}
}

func priority(l zapcore.Level) sdjournal.Priority {
	switch {
	case l < zapcore.InfoLevel:
		return sdjournal.PriDebug
	case l < zapcore.WarnLevel:
		return sdjournal.PriInfo
	case l < zapcore.ErrorLevel:
		return sdjournal.PriWarning
	case l == zapcore.ErrorLevel:
		return sdjournal.PriErr
	}
	return sdjournal.PriCrit
}

// fieldName is the name of a field in the journal, which takes capitals, digits
// and _ only, and at most 64 of them.
func fieldName(key string) string {
	name := prefix + strings.Map(func(r rune) rune {
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

// format writes a value as a person would look for it: text bare, times in RFC
// 3339, what has parts as JSON.
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
	case fmt.Stringer:
		return v.String()
	}
	if b, err := json.Marshal(v); err == nil {
		return string(b)
	}
	return fmt.Sprint(v)
}

// quoted is a value in the line for people: in quotes where it would not read
// as one word, so that nothing that a runtime says can look like another field
// or another line.
func quoted(v string) string {
	if v == "" || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r == '"' || r == '=' || r == 0x7f || !strconv.IsPrint(r) }) {
		return strconv.Quote(v)
	}
	return v
}
