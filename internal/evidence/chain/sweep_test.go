package chain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// fakeAsker answers after a moment, except for those that hang.
type fakeAsker struct {
	hang map[string]bool
	err  map[string]error

	mu                sync.Mutex
	at                []time.Time
	underWay, most    int
	asked, unanswered int
}

func (f *fakeAsker) Ask(ctx context.Context, t Target) error {
	f.mu.Lock()
	f.at = append(f.at, time.Now())
	f.asked++
	f.underWay++
	f.most = max(f.most, f.underWay)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.underWay--
		f.mu.Unlock()
	}()
	if f.hang[t.ID] {
		f.mu.Lock()
		f.unanswered++
		f.mu.Unlock()
		<-ctx.Done()
		return ErrHangs
	}
	time.Sleep(time.Millisecond)
	return f.err[t.ID]
}

func targets(n int) (out []Target) {
	for i := range n {
		out = append(out, Target{ID: fmt.Sprint(i), SandboxID: fmt.Sprintf("s%d", i)})
	}
	return out
}

func always() bool { return true }

// TestSweep: one of 500 hangs. It is found within 3 s, at 200 calls a second and 2
// at a time.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeAsker{hang: map[string]bool{"250": true}}
		var s Sweep
		start := time.Now()
		var found time.Duration
		complete, _ := s.Run(t.Context(), f, targets(500), always, func() { found = time.Since(start) })
		hung, asked := s.Hung()
		if !complete || len(hung) != 1 || hung[0].ID != "250" || asked != 500 {
			t.Errorf("%v: %v of %d", complete, hung, asked)
		}
		if took := time.Since(start); took > 3100*time.Millisecond || found > 2*time.Second || f.most > sweepInFlight {
			t.Errorf("found after %s, all in %s, %d at a time", found, took, f.most)
		}
		for i := 200; i < len(f.at); i++ {
			if f.at[i].Sub(f.at[i-200]) < time.Second {
				t.Fatalf("more than 200 a second, at call %d", i)
			}
		}
	})
}

// TestSweepStops: at the third call that hangs, and the next sweep of the same
// fault makes none.
func TestSweepStops(t *testing.T) {
	for name, hang := range map[string]func(int) bool{
		"all":        func(int) bool { return true },
		"every 20th": func(i int) bool { return i%20 == 0 },
		"the last 5": func(i int) bool { return i >= 95 },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeAsker{hang: map[string]bool{}}
			for i := range 100 {
				f.hang[fmt.Sprint(i)] = hang(i)
			}
			var s Sweep
			for range 3 {
				if complete, _ := s.Run(t.Context(), f, targets(100), always, func() {}); complete {
					t.Errorf("%s: complete", name)
				}
			}
			if hung, _ := s.Hung(); len(hung) != sweepHung || f.unanswered != sweepHung {
				t.Errorf("%s: %d hang, %d calls are left behind", name, len(hung), f.unanswered)
			}
		})
	}
}

// TestSweepEnds: while nothing answers, and when the runtime is gone, there are no
// further calls.
func TestSweepEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeAsker{}
		var s Sweep
		ended := func(ctx context.Context, n int, may func() bool) bool {
			complete, err := s.Run(ctx, f, targets(n), may, func() {})
			return !complete && err == nil
		}
		if !ended(t.Context(), 10, func() bool { return false }) || f.asked != 0 {
			t.Errorf("%d calls while nothing answers", f.asked)
		}
		n := 0
		if !ended(t.Context(), 10, func() bool { n++; return n <= 4 }) || f.asked != 4 {
			t.Errorf("%d calls, want 4", f.asked)
		}
		f.err = map[string]error{"3": errors.New("refused")}
		f.asked = 0
		if !ended(t.Context(), 100, always) || f.asked > 6 {
			t.Errorf("%d calls after the runtime went", f.asked)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if !ended(ctx, 10, always) {
			t.Error("complete after the end")
		}
	})
}

// TestSweepPanics: a panic in a goroutine of the sweep is an error, and no chain is lost
// for it.
func TestSweepPanics(t *testing.T) {
	for name, asker := range map[string]Asker{"in an answer": panics{}, "in the report of a hang": &fakeAsker{hang: map[string]bool{"3": true}}} {
		synctest.Test(t, func(t *testing.T) {
			var s Sweep
			complete, err := s.Run(t.Context(), asker, targets(10), always, func() { panic("in found") })
			if complete || err == nil {
				t.Errorf("%s: %t, %v", name, complete, err)
			}
		})
	}
	var last health.Chain
	e := NewExplorer(t.TempDir(), t.TempDir(), panics{}, func(c health.Chain) { last = c })
	defer e.Close()
	e.Explore(t.Context(), Symptom{
		Operation: "list_containers", OthersAnswered: always, Lasts: always, Targets: func() []Target { return targets(3) },
	})
	if !strings.Contains(last.Unknown, "panicked: in an answer") {
		t.Errorf("%+v", last)
	}
}

type panics struct{}

func (panics) Ask(context.Context, Target) error { panic("in an answer") }
