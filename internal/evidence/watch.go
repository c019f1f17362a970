package evidence

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// ErrNoData is returned by a source that has nothing to say and is not at
// fault: there is no process to look at, no such file on this kernel.
var ErrNoData = errors.New("there is nothing to look at")

// Timing says how often a source is asked, and how long it may take.
type Timing struct {
	Period, Timeout time.Duration
}

// Watch asks one source again and again, in a goroutine of its own, and keeps
// its last answer. A source that takes longer than it may is left behind and
// counts as failed; it is asked again only once it has come back. A panic in it
// is its own failure and nobody else's.
type Watch[T any] struct {
	name   string
	timing Timing
	gather func(context.Context) (*T, error)

	// pace, where there is one, says how long to wait before it is asked again. It
	// is called when the source has come back.
	pace func() time.Duration

	value  atomic.Pointer[T]
	source atomic.Pointer[health.Source]
}

// NewWatch returns a watch of gather, which returns a value that it will not
// change any more, or an error; ErrNoData when there is nothing to say.
func NewWatch[T any](name string, timing Timing, gather func(context.Context) (*T, error)) *Watch[T] {
	return &Watch[T]{name: name, timing: timing, gather: gather}
}

// String names the source, as pleg_evidence_up labels it.
func (w *Watch[T]) String() string { return w.name }

// Value is the last answer, nil when the source failed or had nothing to say.
// It never waits.
func (w *Watch[T]) Value() *T { return w.value.Load() }

// Source is how the source is; ok is false before it has been asked, and while
// it has nothing to say.
func (w *Watch[T]) Source() (s health.Source, ok bool) {
	if p := w.source.Load(); p != nil {
		return *p, true
	}
	return health.Source{}, false
}

// Run asks until ctx ends, and then returns nil.
func (w *Watch[T]) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if !w.ask(ctx) {
			return nil
		}
		period := w.timing.Period
		if w.pace != nil {
			period = w.pace()
		}
		timer.Reset(period)
	}
}

type answer[T any] struct {
	value *T
	err   error
}

// ask asks once and waits until the source has come back, however long; false
// when ctx ended first.
func (w *Watch[T]) ask(ctx context.Context) bool {
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, w.timing.Timeout)
	defer cancel()
	back := make(chan answer[T], 1)
	go func() {
		a := answer[T]{}
		defer func() {
			if p := recover(); p != nil {
				a = answer[T]{err: fmt.Errorf("it panicked: %v", p)}
			}
			back <- a
		}()
		a.value, a.err = w.gather(limited)
	}()
	select {
	case a := <-back:
		w.publish(a, start)
		return true
	case <-limited.Done():
	}
	if ctx.Err() != nil {
		return false
	}
	w.publish(answer[T]{err: fmt.Errorf("no answer within %s", w.timing.Timeout)}, start)
	select {
	case <-back: // too late to be believed
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *Watch[T]) publish(a answer[T], start time.Time) {
	if errors.Is(a.err, ErrNoData) {
		w.value.Store(nil)
		w.source.Store(nil)
		return
	}
	now := time.Now()
	s := &health.Source{Up: a.err == nil, At: now, Duration: now.Sub(start)}
	if a.err != nil {
		s.Err = a.err.Error()
		w.value.Store(nil)
	} else {
		w.value.Store(a.value)
	}
	w.source.Store(s)
}
