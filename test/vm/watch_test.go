//go:build e2e

package vm

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

const (
	// watchPeriod is how often the watch asks plegd.
	watchPeriod = 300 * time.Millisecond
	// calm is how long plegd must stay healthy to count as such.
	calm = 4 * time.Second
)

// watch asks plegd for its verdict again and again. Times are the host's: the
// machine's clock is changed by some tests.
type watch struct {
	t testing.TB

	mu     sync.Mutex
	sights []lab.Sight
}

func (m *machine) watch(t testing.TB) *watch {
	w := &watch{t: t}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(watchPeriod)
		defer tick.Stop()
		for {
			if s, err := m.status(); err == nil {
				w.mu.Lock()
				w.sights = append(w.sights, lab.Sight{At: time.Now(), Status: s})
				w.mu.Unlock()
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	return w
}

// since returns the sights from a moment on.
func (w *watch) since(from time.Time) []lab.Sight {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.sights, func(s lab.Sight) bool { return !s.At.Before(from) })
	if i < 0 {
		return nil
	}
	return slices.Clone(w.sights[i:])
}

// await waits for a sight as asked for, after a moment, and returns it.
func (w *watch) await(from time.Time, limit time.Duration, what string, is func(lab.Sight) bool) lab.Sight {
	w.t.Helper()
	var found lab.Sight
	lab.Eventually(w.t, limit, what, func() error {
		sights := w.since(from)
		i := slices.IndexFunc(sights, is)
		if i < 0 {
			return fmt.Errorf("seen since: %s", history(sights, from))
		}
		found = sights[i]
		return nil
	})
	return found
}

// awaitCalm waits until plegd has been healthy for a while, and returns how long
// it took until it was.
func (w *watch) awaitCalm(from time.Time, limit time.Duration) time.Duration {
	w.t.Helper()
	var since time.Time
	lab.Eventually(w.t, limit, "all is well again", func() error {
		since = time.Time{}
		sights := w.since(from)
		for _, s := range sights {
			switch {
			case s.State != "healthy":
				since = time.Time{}
			case since.IsZero():
				since = s.At
			}
		}
		if since.IsZero() || time.Since(since) < calm {
			return fmt.Errorf("seen since: %s", history(sights, from))
		}
		return nil
	})
	return since.Sub(from)
}

// history is lab.Story and the evidence of the last sight.
func history(sights []lab.Sight, from time.Time) string {
	if len(sights) == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%s; last: %+v", lab.Story(sights, from), sights[len(sights)-1].Reasons)
}

// evidenceOf returns the evidence of a reason, nil when it is not active.
func evidenceOf(s lab.Sight, reason string) []string {
	for _, r := range s.Reasons {
		if r.ID == reason {
			return r.Evidence
		}
	}
	return nil
}
