package logging

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/google/go-cmp/cmp"
)

type sent struct {
	Text     string
	Priority journal.Priority
	Vars     map[string]string
}

// recorder is a journald that takes what is sent.
type recorder struct {
	got  []sent
	hold chan struct{} // not nil: it reads nothing before this is closed
	err  error
}

func (r *recorder) send(text string, p journal.Priority, vars map[string]string) error {
	if r.hold != nil {
		<-r.hold
	}
	if err := r.err; err != nil {
		r.err = nil
		return err
	}
	r.got = append(r.got, sent{text, p, vars})
	return nil
}

func TestFields(t *testing.T) {
	r := &recorder{}
	h := newJournalHandler(slog.LevelInfo, r.send)
	log := slog.New(h).With("source", "judge")
	log.Debug("not this")
	log.Warn("verdict changed", "reason", "RuntimeFrozen", "not_ready_in_seconds", 12.5,
		"evidence", []string{"every thread is stopped"}, "after", 2*time.Second,
		"error", errors.New("first\nsecond"))
	if err := h.queue.sync(); err != nil {
		t.Fatal(err)
	}
	want := []sent{{
		Text: `verdict changed: source=judge reason=RuntimeFrozen not_ready_in_seconds=12.5 ` +
			`evidence=["every thread is stopped"] after=2s error="first\nsecond"`,
		Priority: journal.PriWarning,
		Vars: map[string]string{
			"SYSLOG_IDENTIFIER": "plegd", "PLEGD_SOURCE": "judge", "PLEGD_REASON": "RuntimeFrozen", "PLEGD_NOT_READY_IN_SECONDS": "12.5",
			"PLEGD_EVIDENCE": `["every thread is stopped"]`, "PLEGD_AFTER": "2s", "PLEGD_ERROR": "first\nsecond",
		},
	}}
	if diff := cmp.Diff(want, r.got); diff != "" {
		t.Error(diff)
	}
}

// TestHungJournald shows that a journald that does not read holds nobody up,
// and that what was lost is said once it reads again.
func TestHungJournald(t *testing.T) {
	r := &recorder{hold: make(chan struct{})}
	h := newJournalHandler(slog.LevelInfo, r.send)
	log := slog.New(h)
	const lost = 50
	for range backlog + lost + 1 { // one is with the goroutine, or will be
		log.Info("line")
	}
	if err := h.queue.sync(); err == nil {
		t.Error("Sync says that all is written")
	}
	close(r.hold)
	// What was waiting may take its place in the queue by now.
	for h.queue.sync() != nil {
		continue
	}
	said := 0
	for _, s := range r.got {
		if strings.HasSuffix(s.Text, "lines of the log are missing here: the journal did not take them") {
			said++
		}
	}
	if lines := len(r.got) - said; said == 0 || lines < backlog || lines > backlog+1 {
		t.Errorf("%d lines came through, and %d times it was said that some are missing; want %d and at least 1", lines, said, backlog)
	}
}

// TestRefused shows that a line that journald refuses is missed in the next.
func TestRefused(t *testing.T) {
	r := &recorder{err: errors.New("no such file or directory")}
	h := newJournalHandler(slog.LevelInfo, r.send)
	log := slog.New(h)
	log.Info("lost")
	log.Info("kept")
	if err := h.queue.sync(); err != nil {
		t.Fatal(err)
	}
	if len(r.got) != 2 || r.got[0].Text != "kept" || !strings.HasPrefix(r.got[1].Text, "1 line") {
		t.Errorf("the journal has %+v", r.got)
	}
}

func TestFieldName(t *testing.T) {
	for key, want := range map[string]string{
		"reason":                 "PLEGD_REASON",
		"a.b-c":                  "PLEGD_A_B_C",
		"überlauf":               "PLEGD__BERLAUF",
		strings.Repeat("x", 100): "PLEGD_" + strings.Repeat("X", 58),
	} {
		if got := fieldName(key); got != want {
			t.Errorf("%q is %q, want %q", key, got, want)
		}
	}
}

// TestForgery: a text from outside looks neither like another field, nor like
// another line, nor like a command to a terminal, whatever it begins with.
func TestForgery(t *testing.T) {
	r := &recorder{}
	h := newJournalHandler(slog.LevelInfo, r.send)
	log := slog.New(h)
	for _, evil := range []string{"[x]\nFORGED", "{}\x1b[2J", "[1] state=healthy", "\u009b31m", "\u202eabc"} {
		log.Info("said", "message", evil, "evidence", []string{evil})
	}
	if err := h.queue.sync(); err != nil {
		t.Fatal(err)
	}
	if len(r.got) != 5 {
		t.Fatalf("%d entries", len(r.got))
	}
	for _, s := range r.got {
		if i := strings.IndexFunc(s.Text, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 || strings.Contains(s.Text, "message=[") || strings.Contains(s.Text, "message={") {
			t.Errorf("the line is %q", s.Text)
		}
	}
}
