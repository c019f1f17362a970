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

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
)

// fakeAsker answers after a moment, except for those that hang.
type fakeAsker struct {
	hang string // ids, with a blank around each
	err  map[string]error
	// early is how long before the deadline the runtime reports it, for a runtime that does.
	early time.Duration

	mu                sync.Mutex
	at                []time.Time
	underWay, most    int
	asked, unanswered int
}

func (f *fakeAsker) ask(ctx context.Context, t *cri.Entry) error {
	f.mu.Lock()
	f.at = append(f.at, time.Now())
	f.asked++
	f.underWay++
	f.most = max(f.most, f.underWay)
	hangs := strings.Contains(f.hang, " "+t.ID+" ")
	if hangs {
		f.unanswered++
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.underWay--
		f.mu.Unlock()
	}()
	if hangs {
		deadline, _ := ctx.Deadline()
		time.Sleep(time.Until(deadline) - f.early)
		return &facts.CallError{Code: cri.CodeDeadlineExceeded}
	}
	time.Sleep(time.Millisecond)
	return f.err[t.ID]
}

func targets(n int) (out []*cri.Entry) {
	for i := range n {
		out = append(out, &cri.Entry{ID: fmt.Sprint(i), SandboxID: fmt.Sprintf("s%d", i)})
	}
	return out
}

func always() bool { return true }

// TestSweep: one of 500 hangs. It is found within 3 s, at 200 calls a second and 2
// at a time, and no further call is made.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeAsker{hang: " 250 "}
		began := time.Now()
		s := run(t.Context(), f.ask, targets(500), always)
		found, why := s.target()
		if found.ID != "250" || why != "" || f.unanswered != 1 || s.asked == 500 {
			t.Errorf("%+v, %q after %d calls", found, why, s.asked)
		}
		if took := time.Since(began); took > 2*time.Second || f.most > sweepInFlight {
			t.Errorf("found after %s, %d at a time", took, f.most)
		}
		for i := 200; i < len(f.at); i++ {
			if f.at[i].Sub(f.at[i-200]) < time.Second-sweepSpacing {
				t.Fatalf("more than 200 a second, at call %d", i)
			}
		}
	})
}

// TestSweepResults: the target, or the reason why none is named, and how many calls are
// left in the runtime.
func TestSweepResults(t *testing.T) {
	pod := []*cri.Entry{{ID: "a", SandboxID: "s"}, {ID: "b", SandboxID: "s"}}
	for _, tt := range []struct {
		name       string
		f          *fakeAsker
		targets    []*cri.Entry
		may        bool
		id, why    string
		unanswered int
	}{
		{"all hang", &fakeAsker{hang: " 0 1 2 "}, targets(3), true, "", "2 of 2 single status calls hang", 2},
		{"two of one pod hang", &fakeAsker{hang: " a b "}, pod, true, "a", "", 2},
		{"the runtime reports the deadline first", &fakeAsker{hang: " 2 ", early: 5 * time.Millisecond}, targets(4), true, "2", "", 1},
		{"a call of the runtime is late", &fakeAsker{err: map[string]error{"3": &facts.CallError{Code: cri.CodeDeadlineExceeded}}}, targets(4), true, "", "each of 4", 0},
		{"none hangs", &fakeAsker{}, targets(4), true, "", "each of 4 single status calls is answered", 0},
		{"the runtime ends", &fakeAsker{err: map[string]error{"3": errors.New("refused")}}, targets(100), true, "", "could not be: refused", 0},
		{"nothing else is answered", &fakeAsker{}, targets(4), false, "", "no single status call", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := run(t.Context(), tt.f.ask, tt.targets, func() bool { return tt.may })
			found, why := s.target()
			if found.ID != tt.id || !strings.Contains(why, tt.why) || (why == "") != (tt.why == "") {
				t.Errorf("%s: %+v, %q", tt.name, found, why)
			}
			if tt.f.unanswered != tt.unanswered || tt.f.asked > 6 {
				t.Errorf("%s: %d of %d calls are left behind", tt.name, tt.f.unanswered, tt.f.asked)
			}
		})
	}
}

// TestExploreSurvivesAPanic: a panic of the asker is the reason why the chain ends.
func TestExploreSurvivesAPanic(t *testing.T) {
	panics := func(context.Context, *cri.Entry) error { panic("in an answer") }
	last := New(proc.NewTable("/proc"), t.TempDir(), panics).Explore(t.Context(), symptomOf(targets(3)...))
	check.Contains(t, last.Unknown, "panic: in an answer", "%+v", last)
}
