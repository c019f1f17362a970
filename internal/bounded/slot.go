// Package bounded limits calls that may hang and waits, and remembers since when conditions hold.
//
// It is independent of the calls and of the meaning of a condition.
package bounded

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

var (
	// ErrBusy is returned while the call before has not returned.
	ErrBusy = errors.New("the previous call has not returned yet")
	// ErrLate is returned for a call that exceeds its limit.
	ErrLate = errors.New("no answer")
)

// Slot runs at most one call at a time. A call that exceeds its limit is abandoned:
// its result is dropped, and the slot stays busy until it returns. The zero value is
// ready for use, by several goroutines at once.
type Slot[T any] struct{ busy atomic.Bool }

type result[T any] struct {
	value T
	err   error
}

// Do runs call in a goroutine and returns its result. It returns ErrBusy while the
// call before is still running, an error that wraps ErrLate after the limit, and the
// context's error when ctx ends; a result that is there by then counts. A panic in call
// becomes an error.
func (s *Slot[T]) Do(ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	var none T
	if !s.busy.CompareAndSwap(false, true) {
		return none, ErrBusy
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	back := make(chan result[T], 1)
	go func() {
		var r result[T]
		r.err = Recovered(func() (err error) {
			r.value, err = call(limited)
			return err
		})
		s.busy.Store(false)
		back <- r
	}()
	r := await(limited, back)
	if limited.Err() == nil || !errors.Is(r.err, limited.Err()) {
		return r.value, r.err
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	return none, fmt.Errorf("%w within %s", ErrLate, limit.Round(time.Millisecond))
}

// await returns a call's result. It fails where there is none when ctx is done.
func await[T any](ctx context.Context, back <-chan result[T]) result[T] {
	select {
	case r := <-back:
		return r
	case <-ctx.Done():
	}
	select {
	case r := <-back: // at the same moment
		return r
	default:
		return result[T]{err: ctx.Err()}
	}
}

// Busy reports whether a call is running, abandoned or not.
func (s *Slot[T]) Busy() bool { return s.busy.Load() }

// Line runs calls one after another in a goroutine that keeps its stack between them. A call that
// takes too long is left to it, and the next one gets another goroutine. The zero value is ready
// for use, by one goroutine at a time.
type Line struct {
	calls chan func()
	done  chan struct{}
}

// Do runs a call and waits for its end, but for no longer than patience.
func (l *Line) Do(patience time.Duration, call func()) {
	if l.calls == nil {
		l.calls = make(chan func())
		l.done = make(chan struct{}, 1)
		go serve(l.calls, l.done)
	}
	l.calls <- call
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
		l.Close()
	}
}

// Close ends the goroutine, once its call has ended.
func (l *Line) Close() {
	if l.calls != nil {
		close(l.calls)
		l.calls = nil
	}
}

func serve(calls <-chan func(), done chan<- struct{}) {
	for call := range calls {
		call()
		done <- struct{}{}
	}
}

// Signal asks for something to be done soon; it holds one request.
type Signal chan struct{}

// NewSignal returns a signal without a request.
func NewSignal() Signal { return make(Signal, 1) }

// Send leaves a request. It never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Sleep waits for d. It returns early when ctx ends, and reports whether it has not.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}
