package events

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/leaktest"
)

func TestMain(m *testing.M) { leaktest.Check(m) }

// The events of runtime.v1 that are hints.
const started, stopped = cri.EventType(1), cri.EventType(2)

// runtime is a Source that ends its streams as scripted.
type runtime struct {
	t0 time.Time

	mu      sync.Mutex
	version facts.Runtime
	down    error
	frozen  bool // answers nothing, and ends no stream
	noEnd   bool // ends no stream at its deadline
	end     func(n int) (time.Duration, cri.StreamEnd, error)
	opened  []time.Duration
	leases  []time.Duration
	open    map[int]func(cri.EventType, string)
	most    int
}

func newRuntime() *runtime {
	return &runtime{t0: time.Now(), version: facts.Runtime{Name: "containerd", Version: "2.4.2"}, open: map[int]func(cri.EventType, string){}}
}

func (r *runtime) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *runtime) Version(ctx context.Context) (facts.Runtime, error) {
	r.mu.Lock()
	v, down, frozen := r.version, r.down, r.frozen
	r.mu.Unlock()
	if frozen {
		<-ctx.Done()
		return v, &facts.CallError{Code: cri.CodeDeadlineExceeded}
	}
	return v, down
}

func (r *runtime) ContainerEvents(ctx context.Context, lease time.Duration, each func(cri.EventType, string)) (cri.StreamEnd, error) {
	r.mu.Lock()
	n := len(r.opened)
	r.opened, r.leases = append(r.opened, time.Since(r.t0)), append(r.leases, lease)
	r.open[n] = each
	r.most = max(r.most, len(r.open))
	end := r.end
	r.mu.Unlock()
	defer r.set(func() { delete(r.open, n) })

	after, how, err := lease, cri.StreamLeaseOver, error(nil)
	if end != nil {
		after, how, err = end(n)
	}
	wait := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := wait(after); err != nil {
		return cri.StreamFailed, err
	}
	r.mu.Lock()
	silent := r.frozen || r.noEnd
	r.mu.Unlock()
	if silent && how == cri.StreamLeaseOver {
		if err := wait(lease); err != nil {
			return cri.StreamFailed, err
		}
		return cri.StreamNotEnded, nil
	}
	return how, err
}

func (r *runtime) send(kind cri.EventType, uid string) {
	r.mu.Lock()
	var all []func(cri.EventType, string)
	for _, each := range r.open {
		all = append(all, each)
	}
	r.mu.Unlock()
	for _, each := range all {
		each(kind, uid)
	}
}

// loop notes its calls.
type loop struct {
	mu      sync.Mutex
	hints   []string
	relists int
	uses    []bool
}

func (l *loop) note(f func()) { l.mu.Lock(); defer l.mu.Unlock(); f() }

func (l *loop) Hint(uid string)      { l.note(func() { l.hints = append(l.hints, uid) }) }
func (l *loop) Relist()              { l.note(func() { l.relists++ }) }
func (l *loop) RelyOnEvents(on bool) { l.note(func() { l.uses = append(l.uses, on) }) }

// pause lets time pass, and everything come to rest.
func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func start(t *testing.T, r *runtime, rely bool) (*Subscriber, *loop) {
	l := &loop{}
	s := New(Options{Source: r, Loop: l, Lease: DefaultLease, Rely: rely})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		check.NoError(t, <-ended, "Run")
	})
	return s, l
}

// TestLeases: one stream follows the other, and every event is a hint.
func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime()
		s, l := start(t, r, false)
		pause(time.Second)
		for range 60 {
			r.send(started, "a")
			r.send(cri.EventCreated, "b")
			r.send(stopped, "")
			pause(time.Second)
		}
		st := s.State()
		if r.most != 1 || st.Opened != 7 || st.Errors != 0 || st.Phase != Streaming || st.Received[stopped.String()] != 60 {
			t.Errorf("%d streams at once; %+v", r.most, st)
		}
		if len(l.hints) != 60 || slices.Contains(l.hints, "b") || len(l.uses) != 0 {
			t.Errorf("hints %v, uses %v", l.hints, l.uses)
		}
	})
}

// TestFallBack: five failures end the use of events, each with a relist, and a stream
// that lasts for a lease begins it again.
func TestFallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime()
		s, l := start(t, r, true)
		pause(2 * time.Second)
		if !s.State().InUse || !slices.Equal(l.uses, []bool{true}) {
			t.Fatalf("%+v %v", s.State(), l.uses)
		}
		r.set(func() {
			r.end = func(int) (time.Duration, cri.StreamEnd, error) {
				return 2 * time.Second, cri.StreamFailed, &facts.CallError{Code: cri.CodeUnavailable}
			}
		})
		pause(30 * time.Second)
		st := s.State()
		if st.InUse || !st.FellBack || st.Phase != Broken || st.Failures < MaxFailures || !slices.Equal(l.uses, []bool{true, false}) || l.relists != 4 {
			t.Errorf("%+v %v, %d relists", st, l.uses, l.relists)
		}
		r.set(func() { r.end = nil })
		pause(20 * time.Second)
		if st := s.State(); !st.InUse || st.FellBack || st.Failures != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestFrozenRuntime: a runtime that hangs is no failed stream.
func TestFrozenRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime()
		s, l := start(t, r, true)
		pause(2 * time.Second)
		r.set(func() { r.frozen = true })
		pause(2 * time.Minute)
		if st := s.State(); !st.InUse || st.Errors != 0 || l.relists != 0 {
			t.Errorf("%+v", st)
		}
		r.set(func() { r.frozen = false })
		pause(30 * time.Second)
		if st := s.State(); !st.InUse || st.Phase != Streaming {
			t.Errorf("%+v", st)
		}
	})
}

// TestQuietNode: leases grow with the silence, and are short again after an event.
func TestQuietNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime()
		start(t, r, false)
		pause(12 * time.Hour)
		if last := r.leases[len(r.leases)-1]; last != MaxLease || len(r.leases) > 2000 {
			t.Errorf("%d leases, the last one for %s", len(r.leases), last)
		}
		r.send(cri.EventCreated, "")
		pause(2 * time.Minute)
		check.Equal(t, r.leases[len(r.leases)-1], DefaultLease, "the last lease")
	})
}

// TestNoSubscription: runtimes without events, and those that a subscription harms.
func TestNoSubscription(t *testing.T) {
	ends := func(end cri.StreamEnd, err error) func(*runtime) {
		return func(r *runtime) {
			r.end = func(int) (time.Duration, cri.StreamEnd, error) { return 0, end, err }
		}
	}
	for name, tt := range map[string]struct {
		change func(*runtime)
		phase  string
		most   int // streams in a minute
	}{
		"containerd 1.7": {func(r *runtime) { r.version.Version = "1.7.2" }, Refused, 0},
		"unimplemented":  {ends(cri.StreamFailed, &facts.CallError{Code: cri.CodeUnimplemented}), Unsupported, 1},
		"ends at once":   {ends(cri.StreamClosed, nil), EndsAtOnce, 7},
		"no deadlines":   {func(r *runtime) { r.noEnd = true }, Refused, 5},
		"no runtime":     {func(r *runtime) { r.down = &facts.CallError{Code: cri.CodeUnavailable} }, Waiting, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRuntime()
				tt.change(r)
				s, l := start(t, r, true)
				pause(time.Minute + 11*time.Second)
				if st := s.State(); st.Phase != tt.phase || st.InUse || len(r.opened) > tt.most+1 || st.Opened != uint64(len(r.opened)) {
					t.Errorf("%+v, %d streams", st, len(r.opened))
				}
				if n := len(l.uses); n > 0 && l.uses[n-1] {
					t.Errorf("uses %v", l.uses)
				}
			})
		})
	}
}
