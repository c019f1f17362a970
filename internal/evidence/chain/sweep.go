package chain

import (
	"context"
	"errors"
	"sync"
	"time"
)

// What a sweep may do to the runtime: a call that hangs stays in it for as long as
// what it waits for.
const (
	sweepInFlight = 2
	sweepTimeout  = 500 * time.Millisecond
	sweepSpacing  = 5 * time.Millisecond // 200 a second
	sweepHung     = 3
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

// Sweep asks for single containers or sandboxes, to find the one whose call hangs.
// It belongs to one fault: however often it is run, no more than sweepHung calls
// of it hang.
type Sweep struct {
	mu    sync.Mutex
	hung  []Target
	asked int
}

// Hung returns the targets whose call was not answered, and how many were asked.
func (s *Sweep) Hung() (hung []Target, asked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Target(nil), s.hung...), s.asked
}

// Run asks for the targets in their order, until all are asked, sweepHung of them
// hang, ctx ends, or the runtime cannot be asked. may reports before each call
// whether other calls are still answered; found is called for each that hangs, by
// one goroutine at a time. It reports whether all were asked.
func (s *Sweep) Run(ctx context.Context, asker Asker, targets []Target, may func() bool, found func()) (complete bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slots := make(chan struct{}, sweepInFlight)
	var group sync.WaitGroup
	defer group.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	next := time.Now() // a call that was made late does not put off all others
	for _, t := range targets {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
		}
		select {
		case <-ctx.Done():
			return false
		case slots <- struct{}{}:
		}
		if hung, _ := s.Hung(); len(hung) == sweepHung-1 { // one at a time from here on
			select {
			case <-ctx.Done():
				return false
			case slots <- struct{}{}:
				<-slots
			}
		}
		if !may() || !s.begin(len(slots)) {
			return false
		}
		if next = next.Add(sweepSpacing); time.Since(next) > 0 {
			next = time.Now()
		}
		timer.Reset(time.Until(next))
		group.Go(func() {
			defer func() { <-slots }()
			limited, done := context.WithTimeout(ctx, sweepTimeout)
			defer done()
			switch err := asker.Ask(limited, t); {
			case err == nil:
			case errors.Is(err, ErrHangs) && limited.Err() != nil && ctx.Err() == nil:
				s.mu.Lock()
				s.hung = append(s.hung, t)
				found()
				s.mu.Unlock()
			default:
				cancel()
			}
		})
	}
	group.Wait()
	return ctx.Err() == nil
}

// begin reports whether another call may be made: those under way may all hang.
func (s *Sweep) begin(underWay int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.hung)+underWay > sweepHung {
		return false
	}
	s.asked++
	return true
}
