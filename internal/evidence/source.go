// Package evidence samples the node's state, which explains a runtime that does not answer. Each
// source has a time limit of its own and may fail alone.
//
// A source only reads: it starts no process, signals nobody, and leaves at most
// one connection a minute in the queue of a runtime that does not accept.
package evidence

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
)

// maxErrorBytes bounds the text of an error: it may quote a file of the node.
const maxErrorBytes = 1 << 10

// ErrNoData is returned by a source that has nothing to report and has not failed:
// there is no process to read, or no such file on this kernel.
var ErrNoData = errors.New("no data")

// Source is one source of evidence, for samples of any type.
type Source interface {
	// String names the source, as pleg_evidence_up labels it.
	String() string

	// report stores the last sample in the facts, and returns the state of the source; ok is
	// false while there is nothing to report.
	report(e *facts.Evidence) (s facts.Source, ok bool)
	// tick takes a sample where one is due at half-tick n.
	tick(ctx context.Context, n int, s *Sampler)
	// resamples reports whether the last sample asks for another one soon.
	resamples() bool
	// shifts reports whether a sample is due between two ticks, half a tick after half-tick n.
	shifts(n int, alert bool) bool
}

// Spec describes a source.
type Spec[T any] struct {
	Name string
	// Every is the number of ticks between two samples while something may be wrong,
	// Calm the number in the steady state; 0 is Every. While Resample reports true of the
	// last sample, the source is due at each half-tick: what comes and goes each second is
	// then missed by few samples in a row.
	Every, Calm int
	// Shifts adds half a tick to Calm: what stops for half of each second, in step with plegd's own work, is met by
	// every second sample.
	Shifts   bool
	Resample func(*T) bool
	Timeout  time.Duration // of one sample
	// Gather returns a sample, which it does not change later; or an error, ErrNoData
	// where there is nothing to report. Store puts it into the facts.
	Gather func(context.Context) (*T, error)
	Store  func(*facts.Evidence, *T)
	// Unread returns the parts that the last call of Gather needed and could not read; nil for
	// a source without.
	Unread func() map[string]string
}

// Watch samples one source and keeps the last sample. A sample that exceeds its limit
// or panics has failed; while it has not returned there is no other.
//
// After one failure the sample before it counts until the next one. So a source is in one of
// these states:
//
//	nothing to report  Up, At zero
//	up                 Up, value of the last sample
//	failed once        not Up, value of the sample before, until a time
//	failed             not Up, no value
type Watch[T any] struct {
	spec    Spec[T]
	last    atomic.Pointer[sample[T]]
	pending atomic.Bool // a sample is awaited
	sampled int         // the half-tick of the last sample, -1 before the first
}

// sample is how the last sample of a source ended. At is zero where there is nothing to
// report. The value of the sample before a failure counts until expires.
type sample[T any] struct {
	facts.Source

	value    *T
	expires  time.Time
	resample bool // another sample is due at the next tick
}

func nothing[T any]() *sample[T] { return &sample[T]{Source: facts.Source{Up: true}} }

// urgent reports whether the source is to be sampled at each tick, or has failed.
func (s *sample[T]) urgent() bool { return s.resample || !s.Up }

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
	if !s.Up && time.Now().After(s.expires) {
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
	v := w.Value()
	if v != nil {
		w.spec.Store(e, v)
	}
	s = w.last.Load().Source
	s.Kept = !s.Up && v != nil
	return s, !s.At.IsZero()
}

func (w *Watch[T]) resamples() bool { return w.last.Load().resample }

func (w *Watch[T]) shifts(n int, alert bool) bool {
	return w.spec.Shifts && !alert && n+1-w.sampled == w.interval(alert)
}

// interval is the number of half-ticks between two samples.
func (w *Watch[T]) interval(alert bool) int {
	last := w.last.Load()
	switch {
	case last.resample:
		return 1
	case !alert && last.Up:
		interval := 2 * max(w.spec.Every, w.spec.Calm)
		if w.spec.Shifts {
			interval++
		}
		return interval
	}
	return 2 * w.spec.Every
}

func (w *Watch[T]) tick(ctx context.Context, n int, s *Sampler) {
	due := w.sampled < 0 || n-w.sampled >= w.interval(s.alert.Load())
	if !due || !w.pending.CompareAndSwap(false, true) {
		return
	}
	w.sampled = n
	s.line.Do(patience, func() {
		defer w.pending.Store(false)
		w.sample(ctx, s.notify)
	})
}

// sample takes a sample. notify is called when the source becomes urgent, and when that ends.
func (w *Watch[T]) sample(ctx context.Context, notify func()) {
	limited, cancel := context.WithTimeout(ctx, w.spec.Timeout)
	defer cancel()
	started := time.Now()
	publish := func(next sample[T], err error) {
		wasUrgent := w.last.Load().urgent()
		w.publish(ctx, started, next, err)
		if w.last.Load().urgent() != wasUrgent {
			notify()
		}
	}
	inTime := context.AfterFunc(limited, func() {
		publish(sample[T]{}, fmt.Errorf("%w within %s", bounded.ErrLate, w.spec.Timeout))
	})
	var next sample[T]
	err := bounded.Recovered(func() (err error) {
		next, err = w.gather(limited)
		return err
	})
	if inTime() {
		publish(next, err)
	}
}

func (w *Watch[T]) gather(ctx context.Context) (sample[T], error) {
	value, err := w.spec.Gather(ctx)
	next := sample[T]{value: value}
	if w.spec.Unread != nil {
		next.Unread = w.spec.Unread()
	}
	next.resample = err == nil && w.spec.Resample != nil && w.spec.Resample(value)
	return next, err
}

// publish makes a sample the last one, or what a failure leaves of that.
func (w *Watch[T]) publish(ctx context.Context, started time.Time, next sample[T], err error) {
	last := w.last.Load()
	next.Up = err == nil
	next.At = time.Now()
	next.Duration = time.Since(started)
	isNothing := errors.Is(err, ErrNoData) || errors.Is(err, kubelet.ErrNone)
	switch {
	case ctx.Err() != nil: // plegd is stopping
		return
	case isNothing && len(next.Unread) == 0:
		w.last.Store(nothing[T]())
		return
	case isNothing: // and it is known why
		next.Up = true
		next.value = nil
	case err != nil:
		next.Err = plain.CutTo(err.Error(), maxErrorBytes)
		next.value = nil
		if last.Up {
			next.value = last.value
			next.expires = started.Add(time.Duration(w.spec.Every)*tick + 2*w.spec.Timeout)
		}
	}
	w.last.Store(&next)
}

// patience is the time after which a sample no longer delays those of other sources.
const patience = 20 * time.Millisecond

// tick is the mean time between two ticks while no alert is on.
const tick = time.Second

// Pulse returns a channel that is closed at the daemon's next burst of work, about once a
// second in the steady state: periodic work runs then, so that the process wakes up once.
// It is nil where nothing else is periodic.
type Pulse func() <-chan struct{}

// Sampler samples the sources, each when it is due, until it is stopped.
type Sampler struct {
	sources []Source
	notify  func() // called when a source fails or asks to be sampled again at once, and when that ends
	pulse   Pulse
	alert   atomic.Bool
	wake    bounded.Signal
	line    bounded.Line // of the samples
	jitter  func(shortest time.Duration) time.Duration
}

func newSampler(notify func(), sources ...Source) *Sampler {
	return &Sampler{
		sources: sources,
		notify:  notify,
		wake:    bounded.NewSignal(),
		jitter:  jitter,
	}
}

func jitter(shortest time.Duration) time.Duration { return shortest + rand.N(tick/2) } //nolint:gosec // no secret

// Alert sets whether something may be wrong: each source is then due every Every ticks.
func (s *Sampler) Alert(alert bool) {
	if !s.alert.Swap(alert) && alert {
		s.wake.Send()
	}
}

// IsAlert reports whether something may be wrong, as Alert has set it.
func (s *Sampler) IsAlert() bool { return s.alert.Load() }

// Run samples until ctx ends, and then returns nil. It waits for no source for longer than patience.
func (s *Sampler) Run(ctx context.Context) error {
	defer s.line.Close()
	n := 0
	for ctx.Err() == nil {
		for _, source := range s.sources {
			source.tick(ctx, n, s)
		}
		n += s.sleep(ctx, n)
	}
	return nil
}

// sleep waits for the tick after half-tick n, or for the next half-tick while a source asks for that, and returns the
// number of half-ticks. While an alert is on a fault that comes and goes each second must not stay in phase with the ticks.
func (s *Sampler) sleep(ctx context.Context, n int) int {
	alert := s.alert.Load()
	toPulse := 2 - n%2 // half-ticks
	halves := 2
	shifts := slices.ContainsFunc(s.sources, func(source Source) bool { return source.shifts(n, alert) })
	if shifts || slices.ContainsFunc(s.sources, Source.resamples) {
		halves = 1
	}
	var pulsed <-chan struct{}
	shortest := tick * 3 / 4
	switch {
	case alert:
		shortest = tick / 2
	case s.pulse != nil && !shifts:
		pulsed = s.pulse()
		shortest = tick * 5 / 4
	}
	timer := time.NewTimer(s.jitter(shortest) * time.Duration(halves) / 2)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-pulsed:
		halves = toPulse
		runtime.Gosched() // the other parts make their calls, which are answered while this one reads
	case <-s.wake:
	}
	return halves
}
