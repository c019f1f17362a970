package chain

import (
	"context"
	"errors"
	"fmt"
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
// one goroutine at a time. It reports whether all were asked. A panic of the asker or of
// found ends the sweep and is its error.
func (s *Sweep) Run(
	ctx context.Context, asker Asker, targets []Target, may func() bool, found func(),
) (complete bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, sweepInFlight)
	var group sync.WaitGroup
	timer := time.NewTimer(0)
	defer timer.Stop()
	next := time.Now() // a call that was made late does not put off all others
	for _, t := range targets {
		if !take(ctx, slots, timer.C) || !s.alone(ctx, slots) || !may() || !s.begin(len(slots)) {
			group.Wait()
			return false, failure(ctx)
		}
		if next = next.Add(sweepSpacing); time.Since(next) > 0 {
			next = time.Now()
		}
		timer.Reset(time.Until(next))
		group.Go(func() {
			defer func() { <-slots }()
			defer func() {
				if p := recover(); p != nil {
					cancel(fmt.Errorf("the sweep panicked: %v", p))
				}
			}()
			s.ask(ctx, asker, t, cancel, found)
		})
	}
	group.Wait()
	return ctx.Err() == nil, failure(ctx)
}

// errRuntimeGone ends a sweep: the runtime cannot be asked.
var errRuntimeGone = errors.New("the runtime cannot be asked")

// failure is what made a sweep end that is its own fault.
func failure(ctx context.Context) error {
	err := context.Cause(ctx)
	for _, usual := range []error{context.Canceled, context.DeadlineExceeded, errRuntimeGone} {
		if errors.Is(err, usual) {
			return nil
		}
	}
	return err
}

// take waits for a tick and for a free slot; false when ctx ended first.
func take(ctx context.Context, slots chan<- struct{}, tick <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-tick:
	}
	select {
	case <-ctx.Done():
		return false
	case slots <- struct{}{}:
		return true
	}
}

// alone waits until no other call is under way where the next one that hangs is the last
// one; false when ctx ended first.
func (s *Sweep) alone(ctx context.Context, slots chan struct{}) bool {
	if hung, _ := s.Hung(); len(hung) != sweepHung-1 {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case slots <- struct{}{}:
		<-slots
		return true
	}
}

// ask asks for one target.
func (s *Sweep) ask(ctx context.Context, asker Asker, t Target, end context.CancelCauseFunc, found func()) {
	limited, done := context.WithTimeout(ctx, sweepTimeout)
	defer done()
	switch err := asker.Ask(limited, t); {
	case err == nil:
	case errors.Is(err, ErrHangs) && limited.Err() != nil && ctx.Err() == nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hung = append(s.hung, t)
		found()
	default:
		end(errRuntimeGone)
	}
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
