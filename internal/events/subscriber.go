package events

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
)

const (
	// DefaultLease is the time for which a stream that is not read can block the
	// runtime.
	DefaultLease = 10 * time.Second
	// MinLease is the shortest lease: each one costs the runtime a subscription.
	MinLease = time.Second
	// MaxLease is the longest lease, on a quiet node too.
	MaxLease = time.Minute

	// MaxFailures is the number of failures after which the kubelet falls back to
	// its generic loop (pkg/kubelet/kubelet.go, eventedPlegMaxStreamRetries).
	MaxFailures = 5

	// holdsAfter is the age from which a stream holds: a runtime without events
	// ends it at once.
	holdsAfter = time.Second
	// versionTimeout limits the Version call before a subscription.
	versionTimeout = 5 * time.Second
	// A failed stream is retried after retryFirst, doubling to retryMost as the
	// kubelet's connections. Without a runtime the delay is retryMost, without
	// events retryNone.
	retryFirst = 100 * time.Millisecond
	retryMost  = 3 * time.Second
	retryNone  = 10 * time.Second
	// retryUnsupported is the delay where the runtime does not know the call: each
	// attempt is an error in its log.
	retryUnsupported = 10 * time.Minute

	// maxUnended is the number of streams in a row that a runtime which answers
	// does not end at their deadline, from which it enforces no deadlines.
	maxUnended = 3

	// After quietAfter without an event leases grow with the silence, up to
	// MaxLease: a runtime may free an ended stream only when it has the next event to
	// send (containerd 2.4.2: 12.5 KB each until then, 130 MB a day).
	quietAfter = time.Hour
)

// Source is the runtime's event stream.
type Source interface {
	Version(context.Context) (facts.Runtime, error)
	ContainerEvents(ctx context.Context, lease time.Duration, each func(cri.EventType, string)) (cri.StreamEnd, error)
}

// Loop is the relist loop. None of its methods blocks.
type Loop interface {
	// Hint requests an early relist of a pod.
	Hint(uid string)
	// Relist requests a relist now.
	Relist()
	// RelyOnEvents lengthens the relist period, or ends that.
	RelyOnEvents(bool)
}

// Options configure a Subscriber.
type Options struct {
	Source Source
	Loop   Loop
	// Lease is the duration of a stream.
	Lease time.Duration
	// AllowUnsafe subscribes even to a runtime that Unsafe names.
	AllowUnsafe bool
	// Mode names the use of the events. Rely lengthens the relist period while a stream
	// holds.
	Mode string
	Rely bool
}

// The phases of the subscription (facts.Events).
const (
	Waiting     = "waiting"      // no stream has held yet
	Streaming   = "streaming"    // a stream holds
	Broken      = "broken"       // the last stream failed; it is retried
	Refused     = "refused"      // a subscription would harm this runtime
	Unsupported = "unsupported"  // the runtime has no event stream
	EndsAtOnce  = "ends_at_once" // the runtime ends every stream at once
)

// Subscriber keeps the subscription.
type Subscriber struct {
	opts    Options
	began   time.Time
	unended int // streams in a row that the runtime did not end

	mu    sync.Mutex // guards the following fields
	state facts.Events
	held  bool // a stream has held: a runtime that ends one at once has failed
}

// New returns a subscriber that does not run yet.
func New(opts Options) *Subscriber {
	began := time.Now()
	received := map[string]uint64{}
	for kind := range cri.NumEventTypes {
		received[cri.EventType(kind).String()] = 0
	}
	return &Subscriber{
		opts:  opts,
		began: began,
		state: facts.Events{Mode: opts.Mode, Phase: Waiting, Since: began, Received: received},
	}
}

// State returns the state of the subscription. It never blocks.
func (s *Subscriber) State() *facts.Events {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.state
	out.Received = maps.Clone(out.Received)
	return &out
}

// Run keeps the subscription until ctx ends, and then returns nil.
func (s *Subscriber) Run(ctx context.Context) error {
	for bounded.Sleep(ctx, s.subscribe(ctx)) {
	}
	return nil
}

// subscribe opens a stream and reads it to its end. It returns the delay until the
// next one.
func (s *Subscriber) subscribe(ctx context.Context) time.Duration {
	version, err := s.version(ctx)
	if err != nil {
		// The kubelet's stream breaks with its connection, but not in a runtime that hangs.
		if e := cri.AsError(err); s.State().InUse && e.Code != cri.CodeDeadlineExceeded {
			return s.failed(e)
		}
		return retryMost
	}
	if why := Unsafe(version); why != "" && !s.opts.AllowUnsafe {
		return s.without(Refused, why, retryNone)
	}
	s.mu.Lock()
	s.state.Opened++
	s.mu.Unlock()
	began := time.Now()
	stopTimer := afterFunc(s.holdsAfter(), s.holds)
	end, err := s.opts.Source.ContainerEvents(ctx, s.lease(), s.receive)
	stopTimer()
	s.mu.Lock()
	atOnce := time.Since(began) < holdsAfter && s.state.LastEvent.Before(began) && !s.held
	s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return 0
	case end == cri.StreamLeaseOver:
		s.unended = 0
		return 0
	case end == cri.StreamNotEnded:
		s.unended++
		if _, err := s.version(ctx); err == nil && s.unended >= maxUnended && !s.opts.AllowUnsafe {
			return s.without(Refused, "the runtime answers, but does not end an event stream at its deadline: "+
				"should plegd hang, it could block every pod; --events=off ends this message", retryNone)
		}
		return retryFirst
	case end == cri.StreamClosed && atOnce:
		return s.without(EndsAtOnce,
			"the runtime ends the event stream at once: its events are off (CRI-O: enable_pod_events)", retryNone)
	case end == cri.StreamClosed:
		return s.failed(&facts.CallError{
			Operation: cri.OpContainerEvents, Code: cri.CodeOK, Message: "the runtime ended the stream",
		})
	}
	e := cri.AsError(err)
	if e.Code == cri.CodeUnimplemented {
		return s.without(Unsupported, "the runtime has no event stream: "+e.Message, retryUnsupported)
	}
	return s.failed(e)
}

// afterFunc calls f after d. The function that it returns prevents that, or waits until f has
// returned: no change of phase comes after the end of the stream that it is about.
func afterFunc(d time.Duration, f func()) (stop func()) {
	returned := make(chan struct{})
	timer := time.AfterFunc(d, func() {
		defer close(returned)
		f()
	})
	return func() {
		if !timer.Stop() {
			<-returned
		}
	}
}

func (s *Subscriber) version(ctx context.Context) (facts.Runtime, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	return s.opts.Source.Version(ctx)
}

// lease returns the duration of the next stream.
func (s *Subscriber) lease() time.Duration {
	silence := time.Since(cmp.Or(s.State().LastEvent, s.began))
	grown := time.Duration(float64(s.opts.Lease) * (float64(silence) / float64(quietAfter)))
	return max(s.opts.Lease, min(grown, MaxLease))
}

// holdsAfter is the age from which the next stream holds: after a fallback only a
// full lease does.
func (s *Subscriber) holdsAfter() time.Duration {
	if s.State().FellBack {
		return s.opts.Lease - holdsAfter/2
	}
	return min(holdsAfter, s.opts.Lease/2)
}

// receive takes an event.
func (s *Subscriber) receive(kind cri.EventType, uid string) {
	s.mu.Lock()
	if n, known := s.state.Received[kind.String()]; known {
		s.state.Received[kind.String()] = n + 1
	}
	s.state.LastEvent = time.Now()
	s.mu.Unlock()
	if uid != "" && kind != cri.EventCreated { // the generic PLEG has no event for a creation
		s.opts.Loop.Hint(uid)
	}
}

// enter changes the phase and the rest of the state. It returns the new state.
func (s *Subscriber) enter(phase, detail string, change func(*facts.Events)) facts.Events {
	s.mu.Lock()
	previous := s.state
	s.state.Detail = detail
	if previous.Phase != phase {
		s.state.Phase = phase
		s.state.Since = time.Now()
	}
	change(&s.state)
	current := s.state
	s.mu.Unlock()
	if current.InUse != previous.InUse {
		s.opts.Loop.RelyOnEvents(current.InUse)
	}
	return current
}

// holds notes that a stream holds.
func (s *Subscriber) holds() {
	s.enter(Streaming, "", func(e *facts.Events) {
		if !e.InUse { // the kubelet counts until it falls back
			e.Failures = 0
		}
		e.InUse = s.opts.Rely
		e.FellBack = false
		s.held = true
	})
}

// failed notes a failed stream as the kubelet does: a relist now, and after the
// fifth failure the generic loop. It returns the delay until the next stream.
func (s *Subscriber) failed(err *facts.CallError) time.Duration {
	current := s.enter(Broken, err.Message, func(e *facts.Events) {
		e.Failures++
		e.Errors++
		e.LastFailed = time.Now()
		e.LastErr = err
		if e.InUse && e.Failures >= MaxFailures {
			e.InUse = false
			e.FellBack = true
		}
	})
	if current.InUse {
		s.opts.Loop.Relist()
	}
	return min(retryFirst<<min(current.Failures-1, 10), retryMost)
}

// without continues without events. It returns the delay until the next attempt.
func (s *Subscriber) without(phase, why string, delay time.Duration) time.Duration {
	s.unended = 0
	s.enter(phase, why, func(e *facts.Events) {
		e.Failures = 0
		e.InUse = false
		e.FellBack = false
		s.held = false
	})
	return delay
}
