package events

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/plegd/plegd/internal/cri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runtime is a Source that ends its streams as it is told to.
type runtime struct {
	t0 time.Time

	mu      sync.Mutex
	version cri.Version
	down    error
	frozen  bool // answers nothing, and ends no stream
	noEnd   bool // ends no stream at its deadline
	end     func(n int) (time.Duration, cri.StreamEnd, error)
	opened  []time.Duration
	leases  []time.Duration
	open    map[int]func(*cri.ContainerEvent)
	most    int
}

func newRuntime() *runtime {
	return &runtime{t0: time.Now(), version: cri.Version{RuntimeName: "containerd", RuntimeVersion: "2.4.2"}, open: map[int]func(*cri.ContainerEvent){}}
}

func (r *runtime) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *runtime) Version(ctx context.Context) (cri.Version, error) {
	r.mu.Lock()
	v, down, frozen := r.version, r.down, r.frozen
	r.mu.Unlock()
	if frozen {
		<-ctx.Done()
		return v, &cri.Error{Code: cri.CodeDeadlineExceeded}
	}
	return v, down
}

func (r *runtime) ContainerEvents(ctx context.Context, lease time.Duration, each func(*cri.ContainerEvent)) (cri.StreamEnd, error) {
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

func (r *runtime) send(e *cri.ContainerEvent) {
	r.mu.Lock()
	var all []func(*cri.ContainerEvent)
	for _, each := range r.open {
		all = append(all, each)
	}
	r.mu.Unlock()
	for _, each := range all {
		c := *e
		c.Received = time.Now()
		each(&c)
	}
}

// sendOn sends an event on one stream only.
func (r *runtime) sendOn(n int, e *cri.ContainerEvent) {
	r.mu.Lock()
	each := r.open[n]
	r.mu.Unlock()
	c := *e
	c.Received = time.Now()
	each(&c)
}

// loop notes what it is asked for.
type loop struct {
	mu        sync.Mutex
	events    []string
	relists   int
	catchUps  int
	uses      []bool
	listening []bool
	gaps      int           // how often the stream was said to be interrupted
	gap       bool          // it is, and was not said to be back
	stall     time.Duration // of the next CatchUp
}

func (l *loop) note(f func()) { l.mu.Lock(); defer l.mu.Unlock(); f() }

func (l *loop) Tell(e *cri.ContainerEvent) {
	l.note(func() { l.events = append(l.events, e.ContainerID) })
}
func (l *loop) CatchUp() {
	var stall time.Duration
	l.note(func() { l.catchUps++; stall, l.stall = l.stall, 0 })
	time.Sleep(stall)
}
func (l *loop) UseEvents(on bool) { l.note(func() { l.uses = append(l.uses, on) }) }
func (l *loop) Listening(on bool) {
	l.note(func() { l.listening, l.gap = append(l.listening, on), l.gap && !on })
}
func (l *loop) Interrupted() { l.note(func() { l.gaps++; l.gap = true }) }
func (l *loop) inGap() (in bool) {
	l.note(func() { in = l.gap })
	return in
}
func (l *loop) Relist() <-chan struct{} {
	l.note(func() { l.relists++ })
	done := make(chan struct{})
	time.AfterFunc(10*time.Millisecond, func() { close(done) })
	return done
}

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
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, l
}

// TestLeases: the next stream is open before the last one ends, there are never
// more than two, and every event comes once.
func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime()
		s, l := start(t, r, false)
		var want []string
		for n := range 1000 {
			pause(100 * time.Millisecond)
			synctest.Wait()
			e := event(n)
			e.CreatedAt = time.Now().UnixNano()
			r.send(e)
			want = append(want, e.ContainerID)
		}
		pause(15 * time.Second)
		if !slices.Equal(l.events, want) {
			t.Errorf("%d events came, want %d in their order", len(l.events), len(want))
		}
		for i, at := range r.opened {
			if at != time.Duration(i)*8*time.Second || r.leases[i] != DefaultLease {
				t.Fatalf("stream %d was opened at %s for %s", i, at, r.leases[i])
			}
		}
		st := s.State()
		if r.most != 2 || st.Lapses != 0 || st.Errors != 0 || st.Phase != Streaming || st.Duplicates == 0 || st.Backlog != 0 || l.gaps != 0 {
			t.Errorf("at most %d streams at once; %+v, %d gaps", r.most, st, l.gaps)
		}
	})
}

// TestFollowed: a stream that neither ends at its deadline nor brings anything
// holds up the next one for half a second.
func TestFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime()
		r.noEnd = true
		_, l := start(t, r, false)
		pause(9 * time.Second)
		r.sendOn(1, event(1))
		pause(time.Second)
		l.note(func() {
			if len(l.events) > 0 {
				t.Errorf("%v came while the stream before might still bring it", l.events)
			}
		})
		pause(600 * time.Millisecond)
		l.note(func() {
			if want := []string{event(1).ContainerID}; !slices.Equal(l.events, want) {
				t.Errorf("%v came after the lease, want %v", l.events, want)
			}
		})
	})
}

// TestBacklog: events from before the subscription are told, and counted, and
// say nothing of how late events are.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := newRuntime(), &loop{}
		var delays []time.Duration
		s := New(Options{Source: r, Loop: l, Delay: func(d time.Duration) { delays = append(delays, d) }})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = s.Run(ctx) }()
		pause(2 * time.Second)
		for n, age := range []time.Duration{time.Hour, 3 * time.Second, time.Second} {
			e := event(n)
			e.CreatedAt = time.Now().Add(-age).UnixNano()
			r.send(e)
		}
		if st := s.State(); len(l.events) != 3 || st.Backlog != 2 || !slices.Equal(delays, []time.Duration{time.Second}) {
			t.Errorf("%d events, %d of a backlog, delays %v", len(l.events), st.Backlog, delays)
		}
	})
}

// TestFrozenRuntime: one that answers nothing is no failure of the stream, and
// the subscription is back when it is.
func TestFrozenRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime()
		s, l := start(t, r, true)
		pause(30 * time.Second)
		r.set(func() { r.frozen = true })
		pause(5 * time.Minute)
		if st := s.State(); st.Errors != 0 || !st.InUse || st.Lapses == 0 || !l.inGap() {
			t.Errorf("frozen: %+v, in a gap: %t", st, l.inGap())
		}
		before := l.catchUps
		r.set(func() { r.frozen = false })
		pause(20 * time.Second)
		if st := s.State(); st.Phase != Streaming || !st.InUse || l.catchUps == before || l.inGap() {
			t.Errorf("thawed: %+v, caught up %d times, in a gap: %t", st, l.catchUps-before, l.inGap())
		}
		if r.most > 3 {
			t.Errorf("%d streams at once", r.most)
		}
	})
}

// TestStandingStill: plegd itself stands still for longer than a lease. That is
// no failure of the stream's, and what was not told meanwhile is looked for.
func TestStandingStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime()
		l := &loop{stall: 45 * time.Second}
		s := New(Options{Source: r, Loop: l, Lease: DefaultLease, Rely: true})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = s.Run(ctx) }()
		pause(46500 * time.Millisecond)
		l.note(func() {
			if l.catchUps != 1 {
				t.Errorf("%d catch-ups: this test tests nothing", l.catchUps)
			}
		})
		pause(time.Second)
		st := s.State()
		l.note(func() {
			if st.Lapses != 1 || st.Errors != 0 || !st.InUse || st.Phase != Streaming || l.catchUps != 2 || l.gaps != 1 || l.gap {
				t.Errorf("%+v, %d catch-ups, %d gaps, in one: %t", st, l.catchUps, l.gaps, l.gap)
			}
		})
	})
}

// TestDeadlinesNotEnforced: a runtime that answers and does not end its streams
// is one that plegd could hold up: it is left alone.
func TestDeadlinesNotEnforced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime()
		r.noEnd = true
		s, l := start(t, r, true)
		pause(50 * time.Second)
		if st := s.State(); st.Phase == Refused {
			t.Errorf("after two of them: %+v", st)
		}
		pause(20 * time.Second)
		if st := s.State(); st.Phase != Refused || st.InUse || st.Detail == "" {
			t.Errorf("%+v", st)
		}
		if !slices.Equal(l.uses, []bool{true, false}) {
			t.Errorf("the loop was told %v", l.uses)
		}
	})
}

// TestRuntimeGone: restarts are failures of the stream, as they are the
// kubelet's; five fall back, and a stream that holds for a lease brings back.
func TestRuntimeGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime()
		gone := &cri.Error{Code: cri.CodeUnavailable, Message: "connection refused"}
		s, l := start(t, r, true)
		pause(30 * time.Second)
		r.set(func() {
			r.down = gone
			r.end = func(int) (time.Duration, cri.StreamEnd, error) { return 0, cri.StreamFailed, gone }
			for _, each := range r.open {
				_ = each
			}
		})
		pause(30 * time.Second) // past the end of the leases
		if st := s.State(); !st.FellBack || st.InUse || st.Errors != MaxFailures || l.relists != MaxFailures || !l.inGap() {
			t.Errorf("gone: %+v, %d relists, in a gap: %t", st, l.relists, l.inGap())
		}
		r.set(func() { r.down, r.end = nil, nil })
		pause(retryMost + DefaultLease - time.Second)
		if st := s.State(); st.InUse {
			t.Errorf("back before a stream has held for a lease: %+v", st)
		}
		pause(2 * time.Second)
		if st := s.State(); !st.InUse || st.FellBack || st.Failures != 0 || st.Errors != MaxFailures || l.inGap() {
			t.Errorf("back: %+v, in a gap: %t", st, l.inGap())
		}
		if !slices.Equal(l.uses, []bool{true, false, true}) {
			t.Errorf("the loop was told %v", l.uses)
		}
	})
}

// TestQuietNode: without events leases grow, so that those that a runtime has
// not let go of stay few, to the longest that one may be and no further; the
// first event makes them short again.
func TestQuietNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime()
		s, _ := start(t, r, false)
		pause(24 * time.Hour)
		day, last := len(r.opened), r.leases[len(r.leases)-1]
		if day > 2500 || slices.Max(r.leases) != MaxLease || last != MaxLease {
			t.Errorf("%d streams in a day without events, the last for %s", day, last)
		}
		e := event(1)
		e.CreatedAt = time.Now().UnixNano()
		r.send(e)
		pause(2 * time.Second)
		synctest.Wait()
		r.set(func() {
			if last := r.leases[len(r.leases)-1]; last != DefaultLease || len(r.open) != 1 {
				t.Errorf("2 s after an event: a lease of %s, %d streams", last, len(r.open))
			}
		})
		if st := s.State(); st.Errors+st.Lapses > 0 || st.Phase != Streaming {
			t.Errorf("%+v", st)
		}
	})
}

// TestNone: a runtime without events, and one whose stream ends at once, are
// asked again now and then, and are no failure.
func TestNone(t *testing.T) {
	unimplemented := &cri.Error{Code: cri.CodeUnimplemented, Message: "unknown method"}
	for want, end := range map[Phase]func(int) (time.Duration, cri.StreamEnd, error){
		Unsupported: func(int) (time.Duration, cri.StreamEnd, error) { return 0, cri.StreamFailed, unimplemented },
		EndsAtOnce:  func(int) (time.Duration, cri.StreamEnd, error) { return time.Millisecond, cri.StreamClosed, nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRuntime()
			r.end = end
			s, l := start(t, r, true)
			pause(time.Minute)
			st := s.State()
			if st.Phase != want || st.InUse || st.Errors != 0 || len(l.uses) != 0 || l.relists != 0 {
				t.Errorf("%s: %+v, uses %v", want, st, l.uses)
			}
			if n := len(r.opened); want == Unsupported && n != 1 || want == EndsAtOnce && (n < 5 || n > 8) {
				t.Errorf("%s: tried %d times in a minute", want, n)
			}
			r.set(func() { r.end, r.version.RuntimeVersion = nil, "v2.4.2" })
			pause(retryNone + 2*time.Second)
			if st := s.State(); st.Phase != Streaming || !st.InUse {
				t.Errorf("events are there now: %+v", st)
			}
		})
	}
}

// TestUnsupportedIsAskedSeldom: each time that a runtime is asked for what it
// does not know is an error in its log. One of another version is asked at once.
func TestUnsupportedIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuntime()
		r.end = func(int) (time.Duration, cri.StreamEnd, error) {
			return 0, cri.StreamFailed, &cri.Error{Code: cri.CodeUnimplemented, Message: "unknown method"}
		}
		s, _ := start(t, r, true)
		opened := func() (n int) { r.set(func() { n = len(r.opened) }); return n }
		pause(askUnsupported - time.Minute)
		if n := opened(); n != 1 {
			t.Errorf("asked %d times, want once", n)
		}
		pause(2 * time.Minute)
		if n := opened(); n != 2 {
			t.Errorf("asked %d times, want once more after %s", n, askUnsupported)
		}
		r.set(func() { r.version.RuntimeVersion, r.end = "v2.4.2", nil })
		pause(retryNone + 2*time.Second)
		if st := s.State(); st.Phase != Streaming {
			t.Errorf("another version: %+v", st)
		}
	})
}

// TestErrors: what is no *cri.Error becomes one.
func TestErrors(t *testing.T) {
	if e := asError(errors.New("boom")); e.Code != cri.CodeUnknown || e.Message != "boom" {
		t.Errorf("%+v", e)
	}
}
