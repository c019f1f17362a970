package evidence

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/beat"
	"github.com/plegd/plegd/internal/health"
)

// ErrNoData is returned by a source that has nothing to say and is not at
// fault: there is no process to look at, no such file on this kernel.
var ErrNoData = errors.New("there is nothing to look at")

// Spec is a source of evidence: what it is called, how often it is asked, how
// long it may take, and where its answer goes.
type Spec[T any] struct {
	// Name is the label of pleg_evidence_up.
	Name string
	// Period is the time between two samples while something may be wrong, Calm the
	// time while all is well (see Alert), not less than Period; 0: Period. Fast is
	// the time while Urgent reports true of the last answer. Idle is the time while
	// there is nothing to look at; 0: as otherwise.
	Period, Calm, Fast, Idle time.Duration
	Urgent                   func(*T) bool
	// Timeout limits one sample; while all is well, up to a second more does.
	Timeout time.Duration
	// Gather returns a value that it will not change any more, or an error;
	// ErrNoData when there is nothing to say.
	Gather func(context.Context) (*T, error)
	// Store puts an answer into the facts; nil where somebody else reads Value.
	Store func(*health.Evidence, *T)
	// End is called when Run ends; a gather may still be under way then. nil:
	// nothing.
	End func()
}

// Watch asks one source again and again, in a goroutine of its own, and keeps
// its last answer. A source that takes longer than it may is left behind and
// counts as failed; it is asked again only once it has come back. A panic in it
// is its own failure and nobody else's.
//
// One sample that is missed, as on a busy machine, takes nothing back: the
// answer before it continues to count until the next sample, and Source says so.
type Watch[T any] struct {
	spec Spec[T]
	// spread varies the time between two samples, calm while all is well; limit is the
	// limit of one then.
	spread, calm, limit func(time.Duration) time.Duration

	sample atomic.Pointer[sample[T]]
	source atomic.Pointer[health.Source]

	asked chan context.Context
	back  chan answer[T] // holds one

	alert  atomic.Bool
	wake   chan struct{} // an alert has begun
	notify func()        // nil: nobody
	news   bool          // the last answer was urgent, or an error
}

// sample is an answer.
type sample[T any] struct {
	value *T
	at    time.Time
	// until is when it ends to count, once the sample after it has been missed;
	// zero before.
	until time.Time
}

// NewWatch returns a watch of a source.
func NewWatch[T any](spec Spec[T]) *Watch[T] {
	return &Watch[T]{
		spec: spec, spread: beat.Spread, calm: beat.After, limit: beat.Limit,
		asked: make(chan context.Context), back: make(chan answer[T], 1), wake: make(chan struct{}, 1),
	}
}

// String names the source, as pleg_evidence_up labels it.
func (w *Watch[T]) String() string { return w.spec.Name }

// Alert says whether something may be wrong. When it begins the source is asked at
// once, and from then on every Period; while all is well, as rarely as Calm allows.
func (w *Watch[T]) Alert(on bool) {
	if w.alert.Swap(on) || !on {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Notify has f called when the source becomes urgent or fails, and when neither is
// so any more. It is called before Run.
func (w *Watch[T]) Notify(f func()) { w.notify = f }

// Value is the last answer, nil when the source has failed twice since or had
// nothing to say. It never waits.
func (w *Watch[T]) Value() *T {
	s := w.sample.Load()
	if s == nil || !s.until.IsZero() && time.Now().After(s.until) {
		return nil
	}
	return s.value
}

// Facts puts the last answer into the facts, if there is one. It never waits.
func (w *Watch[T]) Facts(e *health.Evidence) {
	if v := w.Value(); v != nil && w.spec.Store != nil {
		w.spec.Store(e, v)
	}
}

// Source is how the source is; ok is false before it has been asked, and while
// it has nothing to say.
func (w *Watch[T]) Source() (s health.Source, ok bool) {
	p := w.source.Load()
	if p == nil {
		return health.Source{}, false
	}
	s = *p
	s.Kept = !s.Up && w.Value() != nil
	return s, true
}

// Run asks until ctx ends, and then returns nil.
func (w *Watch[T]) Run(ctx context.Context) error {
	if w.spec.End != nil {
		defer w.spec.End()
	}
	go w.work()
	defer close(w.asked)
	timer := time.NewTimer(w.spec.Period)
	defer timer.Stop()
	for w.ask(ctx) {
		timer.Reset(w.wait())
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-w.wake:
		}
	}
	return nil
}

// wait is the time until the source is asked again.
func (w *Watch[T]) wait() time.Duration {
	source := w.source.Load()
	switch v := w.Value(); {
	case v != nil && w.urgent(v):
		return w.spread(min(w.spec.Fast, w.spec.Period))
	case source == nil && w.spec.Idle > 0:
		return w.calm(w.spec.Idle)
	case w.alert.Load() || source != nil && !source.Up:
		return w.spread(w.spec.Period)
	}
	return w.calm(max(w.spec.Period, w.spec.Calm))
}

func (w *Watch[T]) urgent(v *T) bool { return w.spec.Urgent != nil && w.spec.Urgent(v) }

type answer[T any] struct {
	value *T
	err   error
}

// gather is what the source answers.
func (w *Watch[T]) gather(limited context.Context) (a answer[T]) {
	defer func() {
		if p := recover(); p != nil {
			a = answer[T]{err: fmt.Errorf("it panicked: %v", p)}
		}
	}()
	a.value, a.err = w.spec.Gather(limited)
	return a
}

// work gathers whenever it is asked, until Run has ended. A goroutine for each sample
// would have to grow its stack each time.
func (w *Watch[T]) work() {
	for limited := range w.asked {
		w.back <- w.gather(limited)
	}
}

// ask asks once and waits until the source has come back, however long; false
// when ctx ended first.
func (w *Watch[T]) ask(ctx context.Context) bool {
	start := time.Now()
	limit := w.spec.Timeout
	if !w.alert.Load() {
		limit = w.limit(limit)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	w.asked <- limited
	select {
	case a := <-w.back:
		w.publish(a, start)
		return true
	case <-limited.Done():
	}
	if ctx.Err() != nil {
		return false
	}
	w.publish(answer[T]{err: fmt.Errorf("no answer within %s", limit.Round(time.Millisecond))}, start)
	select {
	case <-w.back: // too late to be believed
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *Watch[T]) publish(a answer[T], start time.Time) {
	if errors.Is(a.err, ErrNoData) {
		w.sample.Store(nil)
		w.source.Store(nil)
		w.tell(false)
		return
	}
	now := time.Now()
	s := &health.Source{Up: a.err == nil, At: now, Duration: now.Sub(start)}
	if a.err != nil {
		s.Err = a.err.Error()
		w.sample.Store(w.sample.Load().missed(start.Add(w.spec.Period + 2*w.spec.Timeout)))
	} else {
		w.sample.Store(&sample[T]{value: a.value, at: now})
	}
	w.source.Store(s)
	w.tell(a.err != nil || w.urgent(a.value))
}

// tell calls notify where what the judge would make of the answer may have changed.
func (w *Watch[T]) tell(news bool) {
	if w.notify != nil && news != w.news {
		w.notify()
	}
	w.news = news
}

// missed is what counts after a sample that failed: the one before it for as
// long as the next one may take to come, and nothing when that fails too.
func (s *sample[T]) missed(until time.Time) *sample[T] {
	if s == nil || !s.until.IsZero() {
		return nil
	}
	return &sample[T]{value: s.value, at: s.at, until: until}
}
