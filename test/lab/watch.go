//go:build e2e

package lab

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Sight is what plegd said at one moment.
type Sight struct {
	At time.Time
	Status
}

// Watch looks at plegd's verdict every 50 ms.
type Watch struct {
	t     testing.TB
	plegd *Plegd

	mu     sync.Mutex
	sights []Sight
	stop   chan struct{}
	done   chan struct{}
}

// NewWatch begins to watch; it ends with the test.
func NewWatch(t testing.TB, p *Plegd) *Watch {
	w := &Watch{t: t, plegd: p, stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(pollInterval)
		defer tick.Stop()
		for {
			if s, err := p.Status(); err == nil {
				w.mu.Lock()
				// By plegd's own time, which is this machine's: the way there and back
				// takes a while where the machine is busy.
				w.sights = append(w.sights, Sight{At: s.Now, Status: s})
				w.mu.Unlock()
			}
			select {
			case <-w.stop:
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() {
		close(w.stop)
		<-w.done
	})
	return w
}

// Sights returns what was seen from a moment on.
func (w *Watch) Sights(from time.Time) []Sight {
	w.mu.Lock()
	defer w.mu.Unlock()
	i, _ := slices.BinarySearchFunc(w.sights, from, func(s Sight, at time.Time) int { return s.At.Compare(at) })
	return slices.Clone(w.sights[i:])
}

// Await waits for a sight, after a moment, that is as asked for, and returns
// the first such one.
func (w *Watch) Await(from time.Time, limit time.Duration, what string, is func(Sight) bool) Sight {
	w.t.Helper()
	var found Sight
	Eventually(w.t, time.Until(from.Add(limit)), what, func() error {
		sights := w.Sights(from)
		i := slices.IndexFunc(sights, is)
		if i < 0 {
			return fmt.Errorf("seen since: %s", Story(sights, from))
		}
		found = sights[i]
		return nil
	})
	return found
}

// Reasons returns the primary reasons among sights, each once, in the order of
// their first sight; "" when there was none is left out.
func Reasons(sights []Sight) []string {
	var reasons []string
	for _, s := range sights {
		if s.Reason != "" && !slices.Contains(reasons, s.Reason) {
			reasons = append(reasons, s.Reason)
		}
	}
	return reasons
}

// Story tells how the verdict changed, with the seconds since a moment.
func Story(sights []Sight, from time.Time) string {
	if len(sights) == 0 {
		return "nothing"
	}
	var parts []string
	last := ""
	for _, s := range sights {
		now := s.State
		if s.Reason != "" {
			now += "/" + s.Reason
		}
		if now != last {
			parts = append(parts, fmt.Sprintf("%.2fs %s", s.At.Sub(from).Seconds(), now))
			last = now
		}
	}
	return strings.Join(parts, ", ")
}
