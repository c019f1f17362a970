package chain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/bounded"
)

// Limits of a sweep: a call that hangs stays in the runtime for as long as the lock that
// it waits for. At most sweepInFlight of them do for one fault.
const (
	sweepInFlight = 2
	sweepTimeout  = 500 * time.Millisecond
	sweepSpacing  = 5 * time.Millisecond // 200 a second
)

// Target is a container or a sandbox that is known from the last list.
type Target struct {
	// Sandbox is true for a sandbox; SandboxID is that of a container.
	Sandbox       bool
	ID, SandboxID string
	// Namespace, Pod and Container are names, "" where they are not known.
	Namespace, Pod, Container string
}

// Asker asks the runtime for the status of one container or sandbox.
type Asker interface {
	// Ask returns nil for any answer, ErrHangs when there was none before ctx
	// ended, and any other error when the runtime could not be asked.
	Ask(ctx context.Context, t Target) error
}

// ErrHangs is returned for a call that was not answered in time.
var ErrHangs = errors.New("the call is not answered")

// sweep is the result of asking for single containers or sandboxes, to find the one
// whose call hangs.
type sweep struct {
	began, ended time.Time
	all, asked   int
	hung         []Target
	gone         bool  // the runtime could not be asked
	failed       error // a panic of the asker
}

// run asks for the targets in their order until one hangs, all are asked, ctx ends, or
// the runtime cannot be asked. may reports before each call whether other calls are still
// answered.
func run(ctx context.Context, asker Asker, targets []Target, may func() bool) sweep {
	s := &sweep{began: time.Now(), all: len(targets)}
	var mu sync.Mutex
	slots := make(chan struct{}, sweepInFlight)
	next := time.NewTicker(sweepSpacing)
	defer next.Stop()
	for _, t := range targets {
		select {
		case <-ctx.Done():
		case <-next.C:
		}
		slots <- struct{}{} // each call ends within sweepTimeout
		mu.Lock()
		over := len(s.hung) > 0 || s.gone || s.failed != nil || ctx.Err() != nil || !may()
		if !over {
			s.asked++
		}
		mu.Unlock()
		if over {
			<-slots
			break
		}
		go func() {
			defer func() { <-slots }()
			var answer error
			limited, done := context.WithTimeout(ctx, sweepTimeout)
			defer done()
			failed := bounded.Recovered(func() error {
				answer = asker.Ask(limited, t)
				return nil
			})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case failed != nil:
				s.failed = failed
			case answer == nil:
			case errors.Is(answer, ErrHangs) && limited.Err() != nil && ctx.Err() == nil:
				s.hung = append(s.hung, t)
			default:
				s.gone = true
			}
		}()
	}
	for range sweepInFlight { // the calls under way
		slots <- struct{}{}
	}
	s.ended = time.Now()
	return *s
}

// target returns the target whose call hangs; the text is the reason why there is none.
// kind is that of the targets.
func (s *sweep) target(kind string) (Target, string) {
	switch {
	case len(s.hung) == 1, len(s.hung) > 1 && s.hung[0].SandboxID == s.hung[1].SandboxID:
		return s.hung[0], "" // one lock of a pod may hold up several of its containers
	case len(s.hung) > 1:
		return Target{}, fmt.Sprintf(
			"the calls for %d of %d single %ss hang as well, of different pods", len(s.hung), s.asked, kind)
	case s.failed != nil:
		return Target{}, "the single " + kind + "s could not be asked for: " + s.failed.Error()
	case s.asked == 0:
		return Target{}, "no " + kind + " has been asked for yet"
	case s.asked == s.all && !s.gone:
		return Target{}, fmt.Sprintf("each of %d single %ss is answered: it is a lock of the list itself", s.all, kind)
	}
	return Target{}, fmt.Sprintf("the calls for %d single %ss are answered, the others could not be asked", s.asked, kind)
}
