// Package evidence is what the node says when the runtime does not. Each source
// has a time limit of its own and may fail alone.
//
// A source only reads: it starts no process, signals nobody, and leaves at most
// one connection a minute in the queue of a runtime that does not accept.
package evidence

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/facts"
)

// ErrNoData is returned by a source that has nothing to report and has not failed:
// there is no process to read, or no such file on this kernel.
var ErrNoData = errors.New("there is nothing to look at")

// Source is one source of evidence, for samples of any type.
type Source interface {
	// String names the source, as pleg_evidence_up labels it.
	String() string

	// report stores the last sample in the facts, and returns the state of the source; ok is
	// false while there is nothing to report.
	report(e *facts.Evidence) (s facts.Source, ok bool)
	// tick takes a sample in the background where one is due at tick n.
	tick(ctx context.Context, n int, s *Sampler)
}

// Spec describes a source.
type Spec[T any] struct {
	Name string
	// Every is the number of ticks between two samples while something may be wrong,
	// Calm the number in the steady state; 0 is Every. While Again reports true of the
	// last sample, the source is due at each tick.
	Every, Calm int
	Again       func(*T) bool
	Timeout     time.Duration // of one sample
	// Gather returns a sample, which it does not change later; or an error, ErrNoData
	// where there is nothing to report. Store puts it into the facts.
	Gather func(context.Context) (*T, error)
	Store  func(*facts.Evidence, *T)
}

// Watch samples one source and keeps the last sample. A sample that exceeds its limit
// or panics has failed; while it has not returned there is no other.
//
// After one failure the sample before it counts until the next one.
type Watch[T any] struct {
	spec    Spec[T]
	slot    bounded.Slot[sample[T]]
	last    atomic.Pointer[sample[T]]
	inside  atomic.Bool // a sample is awaited
	sampled int         // the tick of the last sample, -1 before the first
}

// sample is how the last sample of a source ended. At is zero where there is nothing to
// report. A value of before a failure counts until some time. again is true where another
// sample is due at the next tick.
type sample[T any] struct {
	facts.Source

	value *T
	until time.Time
	again bool
}

func nothing[T any]() *sample[T] { return &sample[T]{Source: facts.Source{Up: true}} }

// NewWatch returns a source.
func NewWatch[T any](spec Spec[T]) *Watch[T] {
	w := &Watch[T]{spec: spec, sampled: -1}
	w.last.Store(nothing[T]())
	return w
}

// String names the source.
func (w *Watch[T]) String() string { return w.spec.Name }

// Value returns the last sample; nil for none, and after two failures.
func (w *Watch[T]) Value() *T {
	s := w.last.Load()
	if !s.Up && time.Now().After(s.until) {
		return nil
	}
	return s.value
}

// Sampled returns Value; known is false where nil does not mean that there is none.
func (w *Watch[T]) Sampled() (v *T, known bool) {
	v = w.Value()
	return v, v != nil || w.last.Load().Up
}

func (w *Watch[T]) report(e *facts.Evidence) (s facts.Source, ok bool) {
	v, s := w.Value(), w.last.Load().Source
	if v != nil {
		w.spec.Store(e, v)
	}
	s.Kept = !s.Up && v != nil
	return s, !s.At.IsZero()
}

func (w *Watch[T]) tick(ctx context.Context, n int, s *Sampler) {
	every, last := w.spec.Every, w.last.Load()
	switch {
	case last.again:
		every = 1
	case !s.alert.Load() && last.Up:
		every = max(every, w.spec.Calm)
	}
	due := w.sampled < 0 || n-w.sampled >= every
	if !due || !w.inside.CompareAndSwap(false, true) {
		return
	}
	w.sampled = n
	go func() {
		defer w.inside.Store(false)
		w.sample(ctx)
		if now := w.last.Load(); (now.again || !now.Up) != (last.again || !last.Up) {
			s.notify()
		}
	}()
}

func (w *Watch[T]) gather(ctx context.Context) (s sample[T], err error) {
	s.value, err = w.spec.Gather(ctx)
	s.again = err == nil && w.spec.Again != nil && w.spec.Again(s.value)
	return s, err
}

func (w *Watch[T]) sample(ctx context.Context) {
	start, last := time.Now(), w.last.Load()
	next, err := w.slot.Do(ctx, w.spec.Timeout, w.gather)
	switch {
	case ctx.Err() != nil, errors.Is(err, bounded.ErrBusy): // that the call hangs has been published
		return
	case errors.Is(err, ErrNoData), errors.Is(err, kubelet.ErrNone):
		w.last.Store(nothing[T]())
		return
	}
	next.Source = facts.Source{Up: err == nil, At: time.Now(), Duration: time.Since(start)}
	if err != nil {
		next.Err, next.value = err.Error(), nil
		if last.Up {
			next.value, next.until = last.value, start.Add(time.Duration(w.spec.Every)*tick+2*w.spec.Timeout)
		}
	}
	w.last.Store(&next)
}

// tick is the mean time between two ticks while no alert is on.
const tick = time.Second

// Pulse returns a channel that is closed at the daemon's next burst of work, about once a
// second in the steady state: what is periodic works then, so that the process wakes up once.
// It is nil where nothing else is periodic.
type Pulse func() <-chan struct{}

// Sampler samples the sources, each when it is due, until it is stopped.
type Sampler struct {
	sources []Source
	notify  func() // called when a source fails or asks to be sampled again at once, and when that ends
	pulse   Pulse
	alert   atomic.Bool
	wake    bounded.Signal
	jitter  func(least time.Duration) time.Duration
}

func newSampler(notify func(), sources ...Source) *Sampler {
	return &Sampler{sources: sources, notify: notify, wake: bounded.NewSignal(), jitter: jitter}
}

func jitter(least time.Duration) time.Duration { return least + rand.N(tick/2) } //nolint:gosec // no secret

// Alert sets whether something may be wrong: each source is then due every Every ticks.
func (s *Sampler) Alert(alert bool) {
	if !s.alert.Swap(alert) && alert {
		s.wake.Send()
	}
}

// Run samples until ctx ends, and then returns nil. It waits for no source.
func (s *Sampler) Run(ctx context.Context) error {
	for n := 0; ctx.Err() == nil; n++ {
		for _, source := range s.sources {
			source.tick(ctx, n, s)
		}
		s.sleep(ctx)
	}
	return nil
}

// sleep waits for the next tick. While an alert is on a fault that comes and goes each second
// must not stay in phase with the ticks.
func (s *Sampler) sleep(ctx context.Context) {
	var pulsed <-chan struct{}
	least := tick * 3 / 4
	switch {
	case s.alert.Load():
		least = tick / 2
	case s.pulse != nil:
		pulsed = s.pulse()
		least = tick * 5 / 4
	}
	timer := time.NewTimer(s.jitter(least))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-pulsed:
	case <-s.wake:
	}
}
