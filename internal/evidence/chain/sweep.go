package chain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

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

// Asker asks the runtime for the status of one container or sandbox. It returns nil for any
// answer, ErrHangs when there was none before ctx ended, and any other error when the runtime
// could not be asked.
type Asker func(ctx context.Context, t Target) error

// ErrHangs is returned for a call that was not answered in time.
var ErrHangs = errors.New("the call is not answered")

var errOthersHang = errors.New("no other call is answered")

// sweep is the result of asking for single containers or sandboxes, to find the one
// whose call hangs.
type sweep struct {
	began, ended time.Time
	all, asked   int
	hung         []Target
	failed       error // why not all were asked, nil where one hangs
}

// run asks for the targets in their order until one hangs, all are asked, ctx ends, or
// the runtime cannot be asked. may reports before each call whether other calls are still
// answered.
func run(ctx context.Context, ask Asker, targets []Target, may func() bool) sweep {
	s := sweep{began: time.Now(), all: len(targets)}
	calls, asking := errgroup.WithContext(ctx)
	calls.SetLimit(sweepInFlight)
	next := time.NewTicker(sweepSpacing)
	defer next.Stop()
	var mu sync.Mutex
	for _, t := range targets {
		select {
		case <-asking.Done():
		case <-next.C:
		}
		calls.Go(func() error {
			if asking.Err() != nil || !may() {
				return errOthersHang
			}
			limited, done := context.WithTimeout(ctx, sweepTimeout)
			defer done()
			err := bounded.Recovered(func() error { return ask(limited, t) })
			mu.Lock()
			defer mu.Unlock()
			s.asked++
			if errors.Is(err, ErrHangs) && limited.Err() != nil && ctx.Err() == nil {
				s.hung = append(s.hung, t)
			}
			return err
		})
	}
	if err := calls.Wait(); len(s.hung) == 0 {
		s.failed = err
	}
	s.ended = time.Now()
	return s
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
	case s.asked == 0:
		return Target{}, "no " + kind + " has been asked for yet"
	case s.failed == nil:
		return Target{}, fmt.Sprintf("each of %d single %ss is answered: it is a lock of the list itself", s.all, kind)
	}
	return Target{}, fmt.Sprintf("%d single %ss are asked for, the others could not be: %v", s.asked, kind, s.failed)
}
