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
// at a time, and no further call is made.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeAsker{hang: map[string]bool{"250": true}}
		s := run(t.Context(), f, targets(500), always)
		found, why := s.target("container")
		if found.ID != "250" || why != "" || f.unanswered != 1 || s.asked == 500 {
			t.Errorf("%+v, %q after %d calls", found, why, s.asked)
		}
		if took := s.ended.Sub(s.began); took > 2*time.Second || f.most > sweepInFlight {
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
	never := func() bool { return false }
	for _, tt := range []struct {
		name       string
		asker      Asker
		targets    []Target
		may        func() bool
		id, why    string
		unanswered int
	}{
		{"all hang", &fakeAsker{hang: map[string]bool{"0": true, "1": true, "2": true}}, targets(3), always, "", "2 of 2 single containers hang", 2},
		{"two of one pod hang", &fakeAsker{hang: map[string]bool{"a": true, "b": true}},
			[]Target{{ID: "a", SandboxID: "s"}, {ID: "b", SandboxID: "s"}}, always, "a", "", 2},
		{"none hangs", &fakeAsker{}, targets(4), always, "", "each of 4 single containers is answered", 0},
		{"the runtime ends", &fakeAsker{err: map[string]error{"3": errors.New("refused")}}, targets(100), always, "", "the others could not be asked", 0},
		{"nothing else is answered", &fakeAsker{}, targets(4), never, "", "no container has been asked", 0},
		{"a panic", panics{}, targets(4), always, "", "could not be asked for: panic: in an answer", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := run(t.Context(), tt.asker, tt.targets, tt.may)
			found, why := s.target("container")
			if found.ID != tt.id || !strings.Contains(why, tt.why) || (why == "") != (tt.why == "") {
				t.Errorf("%s: %+v, %q", tt.name, found, why)
			}
			if f, ok := tt.asker.(*fakeAsker); ok && (f.unanswered != tt.unanswered || f.asked > 6) {
				t.Errorf("%s: %d of %d calls are left behind", tt.name, f.unanswered, f.asked)
			}
		})
	}
}

// TestExploreSurvivesAPanic: a panic of the asker is the reason why the chain ends.
func TestExploreSurvivesAPanic(t *testing.T) {
	last := NewExplorer(t.TempDir(), t.TempDir(), panics{}).Explore(t.Context(), symptomOf(targets(3)...))
	if !strings.Contains(last.Unknown, "panic: in an answer") {
		t.Errorf("%+v", last)
	}
}

type panics struct{}

func (panics) Ask(context.Context, Target) error { panic("in an answer") }
