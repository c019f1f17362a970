package evidence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

const testTimeout = 500 * time.Millisecond

// exactly is no jitter.
func exactly(time.Duration) time.Duration { return tick }

// later lets time pass, and everything happen that is due then.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// runSampler samples in the bubble of the test, without jitter; stop ends it.
func runSampler(t *testing.T, notify func(), sources ...Source) (*Sampler, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := newSampler(notify, sources...)
	s.jitter = exactly
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	synctest.Wait()
	return s, func() {
		t.Helper()
		cancel()
		synctest.Wait()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		default:
			t.Error("Run has not returned at the stop")
		}
	}
}

// want checks a source: its value, 0 for none, and its state.
func want(t *testing.T, w *Watch[int], value int, state string) {
	t.Helper()
	got := 0
	if v := w.Value(); v != nil {
		got = *v
	}
	s, ok := w.report(&facts.Evidence{})
	is := "none"
	switch {
	case ok && s.Up:
		is = "up"
	case ok && s.Kept:
		is = "kept: " + s.Err
	case ok:
		is = "down: " + s.Err
	}
	if got != value || !strings.HasPrefix(is, state) {
		t.Errorf("value %d, %s; want %d, %s", got, is, value, state)
	}
}

// TestSourceAnswers has a source fail in every way and recover each time.
func TestSourceAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, news := 0, 0
		w := NewWatch(Spec[int]{Name: "test", Store: func(*facts.Evidence, *int) {}, Every: 1, Timeout: testTimeout, Resample: func(v *int) bool {
			if *v == 9 {
				panic("again")
			}
			return false
		}, Gather: func(context.Context) (*int, error) {
			n++
			v := n
			switch n {
			case 2:
				return nil, errors.New("out of order")
			case 4:
				panic("boom")
			case 5:
				return nil, errors.New("still out of order")
			case 6:
				return nil, fmt.Errorf("the process is gone: %w", ErrNoData)
			case 8:
				return &[]int{}[n], nil
			}
			return &v, nil
		}})
		want(t, w, 0, "none")
		_, stop := runSampler(t, func() { news++ }, w)
		for i, tt := range []struct {
			value int
			state string
		}{
			{1, "up"},
			{1, "kept: out of order"},
			{3, "up"},
			{3, "kept: panic: boom"},
			{0, "down: still out of order"},
			{0, "none"},
			{7, "up"},
			{7, "kept: panic: runtime error: index out of range"},
			{0, "down: panic: again"},
			{10, "up"},
		} {
			if i > 0 {
				later(tick)
			}
			want(t, w, tt.value, tt.state)
		}
		stop()
		later(time.Minute)
		if n != 10 || news != 6 {
			t.Errorf("%d samples, news %d times", n, news)
		}
	})
}

// TestSourceErrorIsCut: an error may quote a file of the node, whose size is anybody's.
func TestSourceErrorIsCut(t *testing.T) {
	w := NewWatch(Spec[int]{Name: "test", Store: func(*facts.Evidence, *int) {}, Every: 1, Timeout: time.Minute,
		Gather: func(context.Context) (*int, error) { return nil, errors.New(strings.Repeat("x", 1<<20)) }})
	w.sample(t.Context(), func() {})
	if s := w.last.Load(); s.Up || len(s.Err) != maxErrorBytes {
		t.Errorf("up %t, an error of %d bytes", s.Up, len(s.Err))
	}
}

// TestSourceHangs abandons a sample that ignores its limit: there is no second one, its
// late answer is dropped, and once it has returned the source is sampled again.
func TestSourceHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, release := 0, make(chan struct{})
		w := NewWatch(Spec[int]{Name: "test", Store: func(*facts.Evidence, *int) {}, Every: 1, Timeout: testTimeout, Gather: func(context.Context) (*int, error) {
			calls++
			v := calls
			if calls == 2 {
				<-release
			}
			return &v, nil
		}})
		_, stop := runSampler(t, func() {}, w)
		defer stop()
		want(t, w, 1, "up")
		later(1400 * time.Millisecond)
		want(t, w, 1, "up") // sampled 400 ms ago
		later(200 * time.Millisecond)
		want(t, w, 1, "kept: no answer within 500ms")
		later(2 * time.Second)
		want(t, w, 0, "down: no answer within 500ms")
		later(time.Hour)
		want(t, w, 0, "down: no answer within 500ms")
		must.Equal(t, calls, 2, "samples while one hangs")
		close(release)
		synctest.Wait()
		want(t, w, 0, "down: no answer within 500ms")
		later(tick)
		want(t, w, 3, "up")
	})
}

// TestSourceDue: every Every ticks, every Calm in the steady state, twice in each tick while
// the sample asks for it, and no other source more often then.
func TestSourceDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			calls, other atomic.Int64
			again        atomic.Bool
		)
		w := NewWatch(Spec[int]{Name: "test", Store: func(*facts.Evidence, *int) {}, Every: 2, Calm: 5, Timeout: testTimeout, Resample: func(*int) bool { return again.Load() }, Gather: func(context.Context) (*int, error) {
			v := int(calls.Add(1))
			return &v, nil
		}})
		beside := NewWatch(Spec[int]{Name: "beside", Every: 1, Timeout: testTimeout, Gather: func(context.Context) (*int, error) {
			other.Add(1)
			return nil, ErrNoData
		}})
		s, stop := runSampler(t, func() {}, w, beside)
		defer stop()
		expect := func(what string, ticks, n int) {
			t.Helper()
			calls.Store(0)
			other.Store(0)
			later(time.Duration(ticks) * tick)
			if int(calls.Load()) != n {
				t.Errorf("%s: %d samples in %d ticks, want %d", what, calls.Load(), ticks, n)
			}
			if other.Load() > int64(ticks)+1 { // an alert has one at once
				t.Errorf("%s: %d samples of the source beside it in %d ticks", what, other.Load(), ticks)
			}
		}
		expect("steady", 20, 4)
		s.Alert(true)
		expect("alert", 20, 10)
		again.Store(true)
		expect("again", 22, 43)
		again.Store(false)
		expect("no longer again", 20, 10)
		s.Alert(false)
		expect("steady again", 25, 5)
	})
}

// TestSamplesShift: samples between two pulses, which come each second, take turns with those at a pulse, and wake plegd up
// once more for each of them.
func TestSamplesShift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var moments []time.Duration // in the second
		w := NewWatch(Spec[int]{
			Name: "test", Every: 1, Calm: 8, Shifts: true, Timeout: testTimeout,
			Gather: func(context.Context) (*int, error) {
				moments = append(moments, time.Since(begun)%tick)
				return nil, ErrNoData
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		s := newSampler(func() {}, w)
		s.jitter = func(shortest time.Duration) time.Duration { return shortest + tick/4 }
		s.pulse = func() <-chan struct{} {
			c := make(chan struct{})
			next := begun.Add(time.Since(begun).Truncate(tick) + tick)
			time.AfterFunc(time.Until(next), func() { close(c) })
			return c
		}
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		later(52 * tick)
		cancel()
		must.Do(t, <-done)
		want := []time.Duration{0, tick / 2, 0, tick / 2, 0, tick / 2, 0}
		check.Same(t, moments, want, "moments of the samples")
	})
}

// newThreadLimit is a source as CONTRIBUTING.md describes one.
func newThreadLimit(root string) *Watch[facts.Node] {
	return NewWatch(Spec[facts.Node]{
		Name: "thread_limit", Every: 1, Timeout: time.Second,
		Gather: func(context.Context) (*facts.Node, error) {
			b, err := os.ReadFile(filepath.Join(root, "threads-max"))
			if err != nil {
				return nil, err
			}
			n, err := strconv.Atoi(strings.TrimSpace(string(b)))
			return &facts.Node{At: time.Now(), ThreadsMax: n}, err
		},
		Store: func(e *facts.Evidence, v *facts.Node) { e.Node = v },
	})
}

// TestAddSource adds a source by one line and finds its facts and its state.
func TestAddSource(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "threads-max")
	must.Do(t, os.WriteFile(file, []byte("90\n"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		w := newThreadLimit(root)
		s, stop := runSampler(t, func() {}, w)
		defer stop()
		r := &Registry{Sampler: s, parts: s.sources, hops: make([]*hop, 1)}
		if e := r.Facts(); e.Node == nil || e.Node.ThreadsMax != 90 || !e.Sources["thread_limit"].Up {
			t.Errorf("%+v, %+v", e.Node, e.Sources)
		}
		must.Do(t, os.Remove(file))
		later(tick)
		if s := r.Facts().Sources["thread_limit"]; s.Up || !s.Kept || !strings.Contains(s.Err, "threads-max") {
			t.Errorf("after one failure: %+v", s)
		}
		later(tick)
		if e := r.Facts(); e.Node != nil {
			t.Errorf("after two failures: %+v", e.Node)
		}
	})
}

// TestRegistryNames: each source has a name of its own.
func TestRegistryNames(t *testing.T) {
	none := NewDialer(DialOptions{Path: at("")})
	r := NewRegistry(Options{ProcFS: "/proc", SysFS: "/sys", Dialer: none, Client: cri.New(cri.Options{}), Dialed: func() *cri.DialResult { return nil }})
	names := map[string]bool{}
	for _, s := range r.sources {
		if names[s.String()] {
			t.Errorf("two sources are named %s", s)
		}
		names[s.String()] = true
	}
	if len(names) == 0 || r.PID() != 0 {
		t.Errorf("%d sources, pid %d", len(names), r.PID())
	}
}
