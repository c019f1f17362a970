package events

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

const (
	// DefaultLease is how long a stream that nobody reads can hold up the
	// runtime.
	DefaultLease = 10 * time.Second
	// MinLease is the shortest: each lease costs the runtime a subscription.
	MinLease = time.Second
	// MaxLease is the longest, on a quiet node too: nobody's plegd may hold up a
	// node for longer.
	MaxLease = time.Minute

	// MaxFailures is how many failures of the stream make the kubelet fall back
	// (pkg/kubelet/kubelet.go, eventedPlegMaxStreamRetries).
	MaxFailures = 5

	// holdsAfter is how long a stream must be open to count as one that holds:
	// a runtime without events ends it at once.
	holdsAfter = time.Second
	// versionLimit limits the question who the runtime is.
	versionLimit = 5 * time.Second
	// A stream that failed is tried again after retryFirst, doubling to
	// retryMost: the kubelet's backoff of connections. Where there is no runtime
	// it is retryMost; where there are no events, retryNone.
	retryFirst = 100 * time.Millisecond
	retryMost  = 3 * time.Second
	retryNone  = 10 * time.Second
	// askUnsupported is after how long a runtime of one version that does not
	// know the call is asked again all the same: each time is an error in its log.
	askUnsupported = 10 * time.Minute

	// surelyUnended is how many streams in a row must not have ended at their
	// deadline, while the runtime answers, for it to enforce none.
	surelyUnended = 3
	// surelyOff is how many streams in a row must have ended at once, where one
	// has held before, for the runtime's events to be off now.
	surelyOff = 20

	// A runtime may notice the end of a lease only when it has something to send
	// (containerd 2.4.2: 12.5 KB each until then, 130 MB in a day without any
	// event). After quietAfter without an event leases grow with the silence, to
	// MaxLease, which makes it a seventh, and are short again with the first event.
	quietAfter = time.Hour
)

// Source is where events come from: the held connection.
type Source interface {
	Version(context.Context) (cri.Version, error)
	ContainerEvents(ctx context.Context, lease time.Duration, each func(*cri.ContainerEvent)) (cri.StreamEnd, error)
}

// Loop is whom the events are for: the relist loop. None of its methods blocks.
type Loop interface {
	// Tell hands over an event.
	Tell(*cri.ContainerEvent)
	// Relist asks for a relist as soon as possible, which a kubelet would make
	// too; what it returns is closed when one that began after that has ended.
	Relist() <-chan struct{}
	// CatchUp asks for a relist as soon as possible, for plegd's own sake.
	CatchUp()
	// UseEvents makes the loop rely on events, or go on without.
	UseEvents(bool)
	// Listening says whether from now on events should tell of every change.
	Listening(bool)
	// Interrupted says that until Listening(true) events may be lost.
	Interrupted()
}

// Options configure a Subscriber.
type Options struct {
	Source Source
	Loop   Loop
	// Lease is how long a stream lasts.
	Lease time.Duration
	// AllowUnsafe subscribes even where Unsafe speaks against it.
	AllowUnsafe bool
	// Rely makes the loop rely on events while a stream holds.
	Rely bool
	// Delay is told of each event how old it was when it came; it must not block.
	Delay func(time.Duration)
}

// Subscriber keeps the subscription.
type Subscriber struct {
	opts     Options
	handover *handover

	mu    sync.Mutex // guards state; held for no longer than it takes to read it
	state State

	busy   chan struct{} // an event came on a long lease
	began  time.Time     // the start of the present run of leases
	quiet  time.Time     // when the last event came, or when plegd began
	streak int           // failures since a stream last held
	// unended counts the streams in a row that the runtime did not end.
	unended int
	// everHeld is true once a stream has held: the runtime has events then, and
	// one that ends at once has failed.
	everHeld bool

	// unsupported is the runtime that did not know the call when it was last
	// asked, askedAt when any was.
	unsupported runtimeVersion
	askedAt     time.Time
}

type runtimeVersion struct{ name, version string }

// New returns a subscriber that has yet to run.
func New(opts Options) *Subscriber {
	if opts.Lease == 0 {
		opts.Lease = DefaultLease
	}
	if opts.Delay == nil {
		opts.Delay = func(time.Duration) {}
	}
	now := time.Now()
	s := &Subscriber{opts: opts, busy: make(chan struct{}, 1), began: now, quiet: now, state: State{Phase: Waiting, Since: now}}
	s.handover = newHandover(s.pass, func() { s.update(func(st *State) { st.Duplicates++ }) })
	return s
}

// String names the task.
func (s *Subscriber) String() string { return "event stream" }

// Run keeps the subscription until ctx ends, and then returns nil.
func (s *Subscriber) Run(ctx context.Context) error {
	for {
		wait := s.attempt(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// attempt subscribes, for as long as that goes well. It returns how long to wait
// before the next attempt.
func (s *Subscriber) attempt(ctx context.Context) time.Duration {
	version, err := s.version(ctx)
	if err != nil {
		// The kubelet's stream breaks with its connection, and says nothing of a
		// runtime that hangs.
		if e := asError(err); s.State().InUse && e.Code != cri.CodeDeadlineExceeded {
			return s.failed(ctx, e)
		}
		return retryMost
	}
	if why := Unsafe(version); why != "" && !s.opts.AllowUnsafe {
		s.without(Refused, why)
		return retryNone
	}
	who := runtimeVersion{version.RuntimeName, version.RuntimeVersion}
	if who == s.unsupported && time.Since(s.askedAt) < askUnsupported {
		return retryNone
	}
	s.askedAt, s.unsupported = time.Now(), runtimeVersion{}
	switch end, err := s.hold(ctx); {
	case ctx.Err() != nil:
		return 0
	case end == cri.StreamLeaseOver:
		s.lapsed()
		return 0
	case end == cri.StreamNotEnded:
		s.lapsed()
		s.unended++
		if _, err := s.version(ctx); err == nil && s.unended >= surelyUnended && !s.opts.AllowUnsafe {
			s.without(Refused, "the runtime answers and does not end an event stream at its deadline: should plegd hang, it could hold up every pod; --events=off ends this message")
			return retryNone
		}
		return retryFirst
	case end == cri.StreamClosed, end == endedAtOnce && s.everHeld && s.streak < surelyOff:
		return s.failed(ctx, &cri.Error{Operation: cri.OpContainerEvents, Code: cri.CodeOK, Message: "the runtime ended the stream"})
	case end == endedAtOnce:
		s.without(EndsAtOnce, "the runtime ends the event stream at once: its events are off (CRI-O: enable_pod_events)")
		return retryNone
	default:
		e := asError(err)
		if e.Code == cri.CodeUnimplemented {
			s.without(Unsupported, "the runtime has no event stream: "+e.Message)
			s.unsupported = who
			return retryNone
		}
		return s.failed(ctx, e)
	}
}

func (s *Subscriber) version(ctx context.Context) (cri.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, versionLimit)
	defer cancel()
	return s.opts.Source.Version(ctx)
}

// without continues without events, for a reason that trying again soon does not
// change.
func (s *Subscriber) without(p Phase, why string) {
	s.use(false)
	s.everHeld, s.streak, s.unended = false, 0, 0
	s.opts.Loop.Listening(false)
	s.enter(p, why)
	s.update(func(st *State) { st.Failures, st.FellBack = 0, false })
}

func (s *Subscriber) use(on bool) {
	if s.opts.Rely && s.State().InUse != on {
		s.update(func(st *State) { st.InUse = on })
		s.opts.Loop.UseEvents(on)
	}
}

// lapsed notes that no lease was open for a while.
func (s *Subscriber) lapsed() {
	s.opts.Loop.Interrupted()
	s.update(func(st *State) { st.Lapses++ })
}

// failed notes a failure as the kubelet does: relist, and after the fifth go on
// without events.
func (s *Subscriber) failed(ctx context.Context, e *cri.Error) time.Duration {
	s.streak++
	s.opts.Loop.Interrupted()
	s.update(func(st *State) {
		st.Failures++
		st.Errors++
		st.LastFailed, st.LastErr = time.Now(), e
	})
	s.enter(Broken, e.Message)
	if st := s.State(); st.InUse {
		select {
		case <-s.opts.Loop.Relist():
		case <-ctx.Done():
			return 0
		}
		if st.Failures >= MaxFailures {
			s.use(false)
			s.update(func(st *State) { st.FellBack = true })
		}
	}
	return min(retryFirst<<min(s.streak-1, 10), retryMost)
}

// held notes that a stream holds.
func (s *Subscriber) held() {
	s.streak, s.everHeld = 0, true
	s.enter(Streaming, "")
	if !s.opts.Rely || !s.State().InUse {
		s.update(func(st *State) { st.Failures, st.FellBack = 0, false })
	}
	s.opts.Loop.Listening(true)
	if s.opts.Rely {
		s.use(true)
		s.opts.Loop.CatchUp() // what happened before the stream was open
	}
}

func asError(err error) *cri.Error {
	var e *cri.Error
	if !errors.As(err, &e) {
		e = &cri.Error{Operation: cri.OpContainerEvents, Code: cri.CodeUnknown, Message: err.Error()}
	}
	return e
}
