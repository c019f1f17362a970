package bounded

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestSlot(t *testing.T) {
	var s Slot[int]
	answer := func(n int, err error) func(context.Context) (int, error) {
		return func(context.Context) (int, error) { return n, err }
	}
	if n, err := s.Do(t.Context(), time.Minute, answer(3, nil)); n != 3 || err != nil {
		t.Errorf("an answer: %d, %v", n, err)
	}
	failed := errors.New("failed")
	if _, err := s.Do(t.Context(), time.Minute, answer(0, failed)); !errors.Is(err, failed) {
		t.Errorf("a failure: %v", err)
	}
	var reported *PanicError
	ReportPanics(func(e *PanicError) { reported = e })
	defer ReportPanics(nil)
	_, err := s.Do(t.Context(), time.Minute, func(context.Context) (int, error) { panic("broken") })
	if err == nil || err.Error() != "panic: broken" {
		t.Errorf("a panic: %v", err)
	}
	if reported == nil || !strings.Contains(string(reported.Stack), "bounded_test.go") {
		t.Errorf("the report of a panic has no stack: %+v", reported)
	}
	release, returned := make(chan struct{}), make(chan struct{})
	_, err = s.Do(t.Context(), time.Millisecond, func(context.Context) (int, error) {
		defer close(returned)
		<-release
		return 1, nil
	})
	if !errors.Is(err, ErrLate) || !s.Busy() {
		t.Errorf("a call that hangs: %v, busy %v", err, s.Busy())
	}
	if _, err = s.Do(t.Context(), time.Minute, answer(2, nil)); !errors.Is(err, ErrBusy) {
		t.Errorf("beside a call that hangs: %v", err)
	}
	close(release)
	<-returned
	for s.Busy() {
		time.Sleep(time.Millisecond)
	}
	if n, err := s.Do(t.Context(), time.Minute, answer(4, nil)); n != 4 || err != nil {
		t.Errorf("after it returned: %d, %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Do(ctx, time.Minute, func(ctx context.Context) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled context: %v", err)
	}
}

// TestAnswerAtTheLimit: an answer that comes together with the limit is kept, and a call that fails because of the limit
// is late, whichever of the two is seen first.
func TestAnswerAtTheLimit(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	const rounds = 100 // of a select that has two ways
	for range rounds {
		back := make(chan result[int], 1)
		back <- result[int]{value: 5}
		if r := await(ended, back); r.value != 5 || r.err != nil {
			t.Fatalf("an answer that came with the limit: %d, %v", r.value, r.err)
		}
		back <- result[int]{err: errors.ErrUnsupported}
		if r := await(ended, back); !errors.Is(r.err, errors.ErrUnsupported) {
			t.Fatalf("a failure that came with the limit: %v", r.err)
		}
		_, err := new(Slot[int]).Do(t.Context(), 0, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		if !errors.Is(err, ErrLate) {
			t.Fatalf("a call that fails because of the limit: %v", err)
		}
	}
}

func TestSince(t *testing.T) {
	var s Since[string]
	at := func(n int64) time.Time { return time.Unix(n, 0) }
	if got := s.Update(at(1), "a", "b"); !got["a"].Equal(at(1)) || !got["b"].Equal(at(1)) {
		t.Errorf("new keys: %v", got)
	}
	if got := s.Update(at(2), "a", "c"); len(got) != 2 || !got["a"].Equal(at(1)) || !got["c"].Equal(at(2)) {
		t.Errorf("a key that holds does not keep its time: %v", got)
	}
	s.Update(at(3))
	if got := s.Update(at(4), "a"); !got["a"].Equal(at(4)) {
		t.Errorf("a key that did not hold meanwhile keeps its time: %v", got)
	}
}
