//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// fault is something that goes wrong with a runtime, and what plegd must say.
type fault struct {
	name string
	// reasons are the right names for it: the primary reason must be one.
	reasons []string
	// state is what the verdict must be when it is named.
	state string
	// within is how soon after the injection it must be named.
	within time.Duration
	// onTheWay are other primary reasons that may be seen before it is named:
	// none for most faults, since a wrong name is worse than a late one.
	onTheWay []string
	// onTheWayBack are further primary reasons that may be seen from the
	// beginning of the fix until all is well.
	onTheWayBack []string
	// healthyWithin is how soon all must be well after the fix; 0: 2 s.
	healthyWithin time.Duration
	// fromStart is true for a fault that was there before plegd.
	fromStart bool
}

// calm is how long all must stay well after a fault: for longer than the
// slowest thing that plegd asks the runtime for, Status every 5 s.
const calm = 5500 * time.Millisecond

// subject is a runtime, a plegd that looks at it and somebody who looks at
// plegd.
type subject struct {
	t       *testing.T
	runtime *lab.Containerd
	plegd   *lab.Plegd
	watch   *lab.Watch
}

// newSubject starts a containerd with some pods and a plegd, and waits until
// all is well.
func newSubject(t *testing.T, options lab.PlegdOptions) *subject {
	t.Helper()
	runtime := lab.NewContainerd(t, lab.ContainerdOptions{})
	runtime.CRI(t).RunPods(3, 1)
	plegd := lab.NewPlegd(t, runtime.Socket, options)
	plegd.AwaitState(10*time.Second, healthy)
	plegd.AwaitRelists(10*time.Second, 2) // the first one inspects every pod
	return &subject{t: t, runtime: runtime, plegd: plegd, watch: lab.NewWatch(t, plegd)}
}

// suffer makes a fault, waits until it is named, lets the caller look, fixes it
// and waits until all is well again.
func (s *subject) suffer(t *testing.T, f fault, inject func(), during func(injected time.Time), fix func()) {
	t.Helper()
	if f.healthyWithin == 0 {
		f.healthyWithin = 2 * time.Second
	}
	logged := s.plegd.Log.Len()
	if f.fromStart {
		logged = 0
	}
	injected := time.Now()
	inject()
	named := s.watch.Await(injected, f.within, "the fault is named "+strings.Join(f.reasons, " or "), func(sight lab.Sight) bool {
		return slices.Contains(f.reasons, sight.Reason)
	})
	if named.State != f.state {
		t.Errorf("%s: the state is %q when the fault is named, want %q", f.name, named.State, f.state)
	}
	s.awaitLogged(t, logged, named.State, named.Reason)
	if during != nil {
		during(injected)
	}

	mending := time.Now()
	fix()
	fixed := time.Now()
	back := s.watch.Await(mending, fixed.Sub(mending)+f.healthyWithin, "all is well again", func(sight lab.Sight) bool {
		return well(sight.Status) && sight.Relist.Failures == 0
	})
	lab.ReportFault(t, f.name, named.Reason, seconds(named.At.Sub(injected)), seconds(max(0, back.At.Sub(fixed))))

	for _, sight := range s.watch.Sights(named.At) {
		if sight.State == healthy && sight.Relist.Failures > 0 {
			t.Errorf("%s: healthy though the last relist has failed and none has succeeded since: %s", f.name, lab.Story(s.watch.Sights(mending), mending))
			break
		}
	}
	allowed := slices.Concat(f.reasons, f.onTheWay, machine)
	var before, after []lab.Sight
	for _, sight := range s.watch.Sights(injected) {
		if sight.At.Before(mending) {
			before = append(before, sight)
		} else if !sight.At.After(back.At) {
			after = append(after, sight)
		}
	}
	for _, reason := range lab.Reasons(before) {
		if !slices.Contains(allowed, reason) {
			t.Errorf("%s: %s was the primary reason on the way: %s", f.name, reason, lab.Story(before, injected))
		}
	}
	allowed = append(allowed, f.onTheWayBack...)
	for _, reason := range lab.Reasons(after) {
		if !slices.Contains(allowed, reason) {
			t.Errorf("%s: %s was the primary reason on the way back: %s", f.name, reason, lab.Story(after, fixed))
		}
	}
	// What was shorter than the watch's sight is in the log.
	s.awaitLogged(t, logged, healthy, "")
	lab.Throughout(t, calm, f.name+": all stays well", func() error {
		status, err := s.plegd.Status()
		if err == nil && !well(status) {
			err = fmt.Errorf("%s, %s: %+v", status.State, status.Reason, status.Reasons)
		}
		return err
	})
	s.checkLog(t, f.name, logged, allowed)
}

// awaitLogged waits until the log says that the verdict has become this one. A
// verdict is asked for at any time, and logged when plegd itself looks at it.
func (s *subject) awaitLogged(t *testing.T, since int, state, reason string) {
	t.Helper()
	lab.Eventually(t, 2*time.Second, fmt.Sprintf("the log says %s %s", state, reason), func() error {
		for _, line := range s.plegd.Log.Since(since) {
			if line.Message() == "verdict changed" && line.String("state") == state && line.String("reason") == reason {
				return nil
			}
		}
		return errors.New("it does not")
	})
}

// checkLog looks at what plegd has logged since a line: every change of verdict
// once, no other reason than these, and no error again and again.
func (s *subject) checkLog(t *testing.T, name string, since int, allowed []string) {
	t.Helper()
	var changes []string
	last := ""
	loud := make(map[string]int)
	for _, line := range s.plegd.Log.Since(since) {
		if line.Fields == nil {
			t.Errorf("%s: a line of the log is not JSON: %s", name, line.Text)
			continue
		}
		if !line.Quiet() {
			loud[line.Level()+" "+line.Message()+" "+line.String("state")+" "+line.String("reason")]++
		}
		if line.Message() != "verdict changed" {
			continue
		}
		reason := line.String("reason")
		change := strings.TrimSuffix(line.String("state")+"/"+reason, "/")
		if change == last {
			t.Errorf("%s: the log says twice that the verdict is %s now", name, change)
		}
		last = change
		changes = append(changes, change)
		if reason != "" && !slices.Contains(allowed, reason) {
			t.Errorf("%s: %s was the primary reason for a moment, says the log", name, reason)
		}
	}
	if len(changes) < 2 || last != healthy {
		t.Errorf("%s: the log says that the verdict became %q; want a fault and then %s", name, changes, healthy)
	}
	for text, n := range loud {
		if n > 3 {
			t.Errorf("%s: the log says %d times: %s", name, n, text)
		}
	}
}

// seconds prints a duration for a table.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
