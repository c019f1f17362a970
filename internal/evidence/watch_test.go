package evidence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const (
	testPeriod  = time.Second
	testTimeout = 500 * time.Millisecond
)

func newTestWatch(gather func(context.Context) (*int, error)) *Watch[int] {
	w := NewWatch(Spec[int]{Name: "test", Period: testPeriod, Timeout: testTimeout, Gather: gather})
	w.limit = func(d time.Duration) time.Duration { return d }
	return w
}

// runWatch runs w in the bubble of the test; stop ends it and fails the test
// when Run does not return at once.
func runWatch[T any](t *testing.T, w *Watch[T]) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	synctest.Wait()
	return func() {
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

// askOnce asks a watch that does not run.
func askOnce[T any](t *testing.T, w *Watch[T]) {
	t.Helper()
	go func() { w.back <- w.gather(<-w.asked) }()
	w.ask(t.Context())
}

// later lets time pass and everything happen that is due then.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantValue[T comparable](t *testing.T, w *Watch[T], want T) {
	t.Helper()
	if v := w.Value(); v == nil || *v != want {
		t.Errorf("value %v, want %v", v, want)
	}
	if s, ok := w.Source(); !ok || !s.Up || s.Err != "" {
		t.Errorf("source %+v, %v: want it up", s, ok)
	}
}

func wantDown[T any](t *testing.T, w *Watch[T], reason string) {
	t.Helper()
	if v := w.Value(); v != nil {
		t.Errorf("a source that failed says %v", *v)
	}
	if s, ok := w.Source(); !ok || s.Up || s.Kept || !strings.Contains(s.Err, reason) {
		t.Errorf("source %+v, %v: want it down by %q", s, ok, reason)
	}
}

// wantKept is a source whose answer before still counts.
func wantKept[T comparable](t *testing.T, w *Watch[T], want T, reason string) {
	t.Helper()
	if v := w.Value(); v == nil || *v != want {
		t.Errorf("value %v, want %v of the sample before", v, want)
	}
	if s, ok := w.Source(); !ok || s.Up || !s.Kept || !strings.Contains(s.Err, reason) {
		t.Errorf("source %+v, %v: want it down by %q and its value kept", s, ok, reason)
	}
}

func wantNothing[T any](t *testing.T, w *Watch[T]) {
	t.Helper()
	if v := w.Value(); v != nil {
		t.Errorf("value %v, want none", *v)
	}
	if s, ok := w.Source(); ok {
		t.Errorf("source %+v, want none", s)
	}
}

// TestWatchAnswers has a source fail in every way that it can and come back
// each time.
func TestWatchAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		w := newTestWatch(func(context.Context) (*int, error) {
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
		})
		if w.String() != "test" {
			t.Errorf("name %q", w)
		}
		wantNothing(t, w)
		w.spread, w.calm = exactly, exactly
		stop := runWatch(t, w)
		wantValue(t, w, 1)
		later(time.Second)
		wantKept(t, w, 1, "out of order")
		later(time.Second)
		wantValue(t, w, 3)
		later(time.Second)
		wantKept(t, w, 3, "panicked: boom")
		later(time.Second)
		wantDown(t, w, "still out of order")
		later(time.Second)
		wantNothing(t, w)
		later(time.Second)
		wantValue(t, w, 7)
		later(time.Second)
		wantKept(t, w, 7, "out of range")
		later(time.Second)
		wantValue(t, w, 9)
		stop()
		later(time.Minute)
		if n != 9 {
			t.Errorf("asked %d times, want none after the stop", n)
		}
	})
}

// TestWatchHangs leaves a source behind that hangs and ignores its limit: it is
// not asked a second time, its late answer is not believed, and once it is back
// it is asked again.
func TestWatchHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, back := 0, make(chan struct{})
		w := newTestWatch(func(context.Context) (*int, error) {
			calls++
			v := calls
			if calls == 2 {
				<-back
			}
			return &v, nil
		})
		w.spread, w.calm = exactly, exactly
		stop := runWatch(t, w)
		defer stop()
		wantValue(t, w, 1)
		later(1400 * time.Millisecond)
		wantValue(t, w, 1) // asked 400 ms ago, which it may take
		later(200 * time.Millisecond)
		wantKept(t, w, 1, "no answer within 500ms")
		later(1300 * time.Millisecond)
		wantKept(t, w, 1, "no answer within 500ms") // 2.9 s old
		later(200 * time.Millisecond)
		wantDown(t, w, "no answer within 500ms")
		if s, _ := w.Source(); s.Duration != testTimeout {
			t.Errorf("it took %s, want the limit", s.Duration)
		}
		later(time.Hour)
		wantDown(t, w, "no answer within 500ms")
		if calls != 2 {
			t.Fatalf("asked %d times while it hangs, want 2", calls)
		}
		close(back)
		synctest.Wait()
		wantDown(t, w, "no answer within 500ms") // what it says now is an hour old
		later(time.Second)
		wantValue(t, w, 3)
	})
}

// TestWatchHurries asks sooner while the answer wants it.
func TestWatchHurries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		w := newTestWatch(func(context.Context) (*int, error) {
			v := int(calls.Add(1))
			return &v, nil
		})
		w.spread, w.calm = exactly, exactly
		w.spec.Fast, w.spec.Urgent = 250*time.Millisecond, func(v *int) bool { return *v >= 3 && *v < 7 }
		stop := runWatch(t, w)
		const ms = time.Millisecond
		for _, tt := range []struct {
			after time.Duration
			calls int
		}{{1990 * ms, 2}, {20 * ms, 3}, {230 * ms, 3}, {20 * ms, 4}, {740 * ms, 7}, {990 * ms, 7}, {20 * ms, 8}} {
			later(tt.after)
			if n := int(calls.Load()); n != tt.calls {
				t.Errorf("%d calls, want %d", n, tt.calls)
			}
		}
		stop()
	})
}

// TestWatchLate is about a source that is only somewhat late, each time.
func TestWatchLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		w := newTestWatch(func(context.Context) (*int, error) {
			calls++
			v := calls
			time.Sleep(800 * time.Millisecond)
			return &v, nil
		})
		w.spread, w.calm = exactly, exactly
		stop := runWatch(t, w)
		for range 100 {
			later(100 * time.Millisecond)
			if v := w.Value(); v != nil {
				t.Fatalf("a late answer was believed: %d", *v)
			}
		}
		if calls != 6 { // at 0, 1.8, 3.6, 5.4, 7.2, 9
			t.Errorf("asked %d times in 10 s, want 6", calls)
		}
		stop()
		later(time.Second) // until the last one is back
	})
}

// TestWatchEndsTheCall is about a source that heeds its limit.
func TestWatchEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		w := newTestWatch(func(ctx context.Context) (*int, error) {
			calls++
			<-ctx.Done()
			return nil, ctx.Err()
		})
		w.spread, w.calm = exactly, exactly
		stop := runWatch(t, w)
		later(600 * time.Millisecond)
		if s, ok := w.Source(); !ok || s.Up {
			t.Errorf("source %+v, %v: want it down", s, ok)
		}
		later(time.Second)
		if calls != 2 {
			t.Errorf("asked %d times, want 2", calls)
		}
		stop()
	})
}

// TestWatchStop stops while a source hangs that heeds nothing.
func TestWatchStop(t *testing.T) {
	for name, after := range map[string]time.Duration{
		"before the limit": 100 * time.Millisecond,
		"after the limit":  10 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				back := make(chan struct{})
				w := newTestWatch(func(context.Context) (*int, error) {
					<-back
					return new(int), nil
				})
				stop := runWatch(t, w)
				later(after)
				stop()
				close(back)
				synctest.Wait()
				if v := w.Value(); v != nil {
					t.Errorf("value %d after the stop", *v)
				}
			})
		})
	}
}

// exactly leaves the time between two samples as it is.
func exactly(d time.Duration) time.Duration { return d }

// TestWatchIsInPhaseWithNothing: what is there for 700 ms of every second is seen
// soon, whenever in the second the samples begin.
func TestWatchIsInPhaseWithNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			start, seen := time.Now(), 0
			w := newTestWatch(func(context.Context) (*int, error) {
				if time.Since(start)%time.Second >= 300*time.Millisecond {
					seen++
				}
				return new(int), nil
			})
			stop := runWatch(t, w)
			later(30 * time.Second)
			stop()
			if seen < 12 {
				t.Errorf("seen in %d of some 34 samples, want more than a third", seen)
			}
		}
	})
}
