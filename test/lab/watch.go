//go:build e2e

package lab

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Sight is a verdict at one moment: asked for, or logged (then without evidence).
type Sight struct {
	At time.Time
	// Busy reports whether the machine was short of CPU by its own account.
	Busy bool
	// Logged is true for a verdict that was logged.
	Logged bool
	Status
}

// Evidence is the primary reason's, "" for a verdict that was logged.
func (s *Sight) Evidence() string {
	for _, r := range s.Reasons {
		if r.ID == s.Reason {
			return strings.Join(r.Evidence, "; ")
		}
	}
	return ""
}

// Active reports whether a reason is active.
func (s *Sight) Active(id string) bool {
	return slices.ContainsFunc(s.Reasons, func(r Reason) bool { return r.ID == id })
}

// Watch asks for plegd's verdict every 50 ms and reads the changes that it logs.
type Watch struct {
	t   testing.TB
	log *Log // nil: the log is not read
	end func()

	mu     sync.Mutex
	sights []Sight
	lines  int
	busy   bool
}

// NewWatch begins to watch; it ends with the test, or with End.
func NewWatch(t testing.TB, p *Plegd) *Watch {
	return NewWatchOf(t, p.Log, PollInterval, p.Status)
}

// NewWatchOf watches a plegd that the lab has not started.
func NewWatchOf(t testing.TB, log *Log, period time.Duration, status func() (Status, error)) *Watch {
	w := &Watch{t: t, log: log}
	if log != nil {
		w.lines = log.Len()
	}
	w.end = Every(t, period, func() {
		if s, err := status(); err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.busy = CPUPressure() >= Pressed
			// By plegd's own time, which is this machine's: the way there and back
			// takes a while where the machine is busy.
			w.sights = append(w.sights, Sight{At: s.Now, Busy: w.busy, Status: s})
		}
	})
	return w
}

// End ends the watch.
func (w *Watch) End() { w.end() }

// Sights returns the sights from a moment on, in order.
func (w *Watch) Sights(from time.Time) []Sight {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines []Line
	if w.log != nil {
		lines = w.log.Since(w.lines)
	}
	w.lines += len(lines)
	for _, l := range lines {
		if l.Message() == "verdict changed" {
			status := Status{State: l.String("state"), Reason: l.String("reason")}
			w.sights = append(w.sights, Sight{At: l.At, Busy: w.busy, Logged: true, Status: status})
		}
	}
	slices.SortStableFunc(w.sights, func(a, b Sight) int { return a.At.Compare(b.At) })
	i, _ := slices.BinarySearchFunc(w.sights, from, func(s Sight, at time.Time) int { return s.At.Compare(at) })
	return slices.Clone(w.sights[i:])
}

// Find returns the first sight after a moment that is as asked for, within a limit.
func (w *Watch) Find(from time.Time, limit time.Duration, is func(Sight) bool) (Sight, bool) {
	for {
		late := time.Since(from) > limit
		sights := w.Sights(from)
		if i := slices.IndexFunc(sights, is); i >= 0 {
			return sights[i], true
		}
		if late {
			return Sight{}, false
		}
		time.Sleep(PollInterval)
	}
}

// Await is Find for a sight without which the test cannot continue.
func (w *Watch) Await(from time.Time, limit time.Duration, what string, is func(Sight) bool) Sight {
	w.t.Helper()
	asked := func(s Sight) bool { return !s.Logged && is(s) }
	found, ok := w.Find(from, limit, asked)
	if !ok {
		w.t.Fatalf("not within %s: %s: %s", limit, what, Story(w.Sights(from), from))
	}
	return found
}

// Calm waits until the verdict is healthy for a while, and returns how long that took
// since a moment. A machine that is short of CPU counts as healthy.
func (w *Watch) Calm(from time.Time, limit, calm time.Duration) (time.Duration, error) {
	for {
		now := time.Now()
		var well time.Time
		for _, s := range w.Sights(from) {
			switch {
			case s.State != "healthy" && (!s.Busy || s.Reason != "NodePressure"):
				well = time.Time{}
			case well.IsZero():
				well = s.At
			}
		}
		switch {
		case !well.IsZero() && now.Sub(well) > calm:
			return max(0, well.Sub(from)), nil
		case now.Sub(from) > limit && (well.IsZero() || well.Sub(from) > limit):
			return 0, errors.New("not healthy within " + limit.String())
		}
		time.Sleep(PollInterval)
	}
}

// Reasons returns the primary reasons among sights, each once, in the order of their first sight.
func Reasons(sights []Sight) []string {
	var reasons []string
	for _, s := range sights {
		if s.Reason != "" && !slices.Contains(reasons, s.Reason) {
			reasons = append(reasons, s.Reason)
		}
	}
	return reasons
}

// Story lists the changes of the verdict, with the seconds since a moment.
func Story(sights []Sight, from time.Time) string {
	if len(sights) == 0 {
		return "nothing"
	}
	var parts []string
	last := ""
	for _, s := range sights {
		now := strings.TrimSuffix(s.State+"/"+s.Reason, "/")
		if now != last {
			parts = append(parts, fmt.Sprintf("%.2fs %s", s.At.Sub(from).Seconds(), now))
			last = now
		}
	}
	return strings.Join(parts, ", ")
}
