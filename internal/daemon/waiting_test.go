package daemon

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestSweepBeforeTheHangCounts: plegd inspects single containers as soon as a list
// takes longer than usual while Version is answered. It inspects all 500 within 4 s of
// the list's start, and the results count once the list hangs.
func TestSweepBeforeTheHangCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, fakeRuntime(250, 2), nil)
		w.at(fault)
		w.fail("ListContainers=hang")
		const list = 11 * time.Second // the relist that hangs begins
		before := w.rt.Calls("ContainerStatus").Started
		if s := w.at(list + 1400*time.Millisecond); s.Reason != "" || s.Chain != nil {
			t.Errorf("%s: %+v before the list counts as hanging", s.Reason, s.Chain)
		}
		if w.rt.Calls("ContainerStatus").Started == before {
			t.Error("no container has been asked for before the list counts as hanging")
		}
		if s := w.at(list + 4*time.Second); s.Reason != health.RuntimeListStall || !strings.HasPrefix(s.ChainEnd, "each of 500 single status calls is answered") {
			t.Errorf("%s, the chain ends: %q", s.Reason, s.ChainEnd)
		}
		w.fail("")
		if s := w.at(list + 10*time.Second); s.State != facts.StateHealthy || s.Facts.Evidence.Chain != nil {
			t.Errorf("%s: %+v after the hang", s.State, s.Facts.Evidence.Chain)
		}
	})
}

// TestSweepEndsWithTheList: no container is asked for after a slow list has been
// answered, and none while nothing is answered.
func TestSweepEndsWithTheList(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, fakeRuntime(250, 2), nil)
		w.at(fault)
		asked := func() int { return w.rt.Calls("ContainerStatus").Started }
		before := asked()
		w.fail("ListContainers=delay(1s)")
		w.at(12100 * time.Millisecond)
		w.fail("")
		slow := asked()
		if n := slow - before; n == 0 || n > 70 {
			t.Errorf("%d containers were asked for in a quarter of a second", n)
		}
		w.at(20500 * time.Millisecond)
		w.fail("*=hang")
		w.at(40 * time.Second)
		check.Equal(t, asked()-slow, 0, "containers were asked for after the slow list, while no call hangs alone")
	})
}

// TestInspectionFollowedBeforeItHangs: plegd follows the wait chain of a pod's
// inspection as soon as the inspection takes longer than usual, and shows it from the
// moment at which it counts as hanging. It makes few calls for it, each once.
func TestInspectionFollowedBeforeItHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, fakeRuntime(10, 0), nil)
		w.at(fault)
		w.fail("PodSandboxStatus=hang")
		w.rt.AddPod(fakeruntime.PodSpec{Name: "stuck", Namespace: "default"})
		const inspection = 11 * time.Second // it begins
		asked := func() int { return w.rt.Calls("PodSandboxStatus").Started }
		before := asked()
		if s := w.at(inspection + 1400*time.Millisecond); s.Reason != "" || s.Chain != nil || asked() != before+2 {
			t.Errorf("%s: %+v, %d calls, before the inspection counts as hanging", s.Reason, s.Chain, asked()-before)
		}
		s := w.at(inspection + 3300*time.Millisecond)
		if c := s.Culprit; s.Reason != health.PodInspectionStall || c == nil || c.Name != "default/stuck" {
			t.Errorf("%s: %+v once the inspection hangs", s.Reason, s.Chain)
		}
		if w.at(inspection + 9*time.Second); asked() != before+2 {
			t.Errorf("%d calls for one inspection that hangs", asked()-before)
		}
		w.fail("")
		if s := w.at(inspection + 20*time.Second); s.State != facts.StateHealthy || s.Facts.Evidence.Chain != nil {
			t.Errorf("%s: %+v after the hang", s.State, s.Facts.Evidence.Chain)
		}
	})
}

// TestSlowInspectionsAreNotFollowed: of inspections that all take long none is
// suspected, once one has been answered.
func TestSlowInspectionsAreNotFollowed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, fakeRuntime(10, 0), nil)
		w.fail("PodSandboxStatus=delay(1s)")
		w.at(15 * time.Second) // the pods of the start are inspected
		const pods = 30
		before := w.rt.Calls("PodSandboxStatus").Started
		for i := range pods {
			w.rt.AddPod(fakeruntime.PodSpec{Name: fmt.Sprint("slow-", i), Namespace: "default"})
		}
		w.at(60 * time.Second)
		check.Equal(t, w.rt.Calls("PodSandboxStatus").Started-before, pods, "calls for pods")
	})
}

// TestSettledChain: a chain is followed again at once when one of its processes changes, and
// every few seconds while it does not.
func TestSettledChain(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name    string
		since   time.Duration // for how long the culprit has been as it is
		passed  time.Duration // since the round
		state   byte          // of the culprit now, 0 for ended
		start   uint64
		settled bool
	}{
		{"it stays stopped", time.Minute, time.Second, 'T', 9, true},
		{"it has gone on", time.Minute, time.Second, 'S', 9, false},
		{"it has ended", time.Minute, time.Second, 0, 9, false},
		{"another process has its number", time.Minute, time.Second, 'T', 99, false},
		{"a while ago", time.Minute, settledEvery, 'T', 9, false},
		{"it has just begun", time.Second, time.Second, 'T', 9, false},
	} {
		root := t.TempDir()
		write := func(state byte, start uint64) {
			evidencetest.WriteTree(t, root, map[string]string{"7/stat": evidencetest.StatLine(7, "thing", state, 1, start)})
		}
		f := &chainFollower{Daemon: &Daemon{cfg: Config{ProcFS: root}}}
		write('T', 9)
		culprit := facts.Link{Kind: facts.KindProcess, PID: 7, Since: now.Add(-tt.since)}
		c := &facts.Chain{At: now.Add(-tt.passed), Links: []facts.Link{{Kind: facts.KindCall}, culprit}}
		f.chain.Store(c)
		f.noteStates(c)
		if tt.state == 0 {
			must.Do(t, os.RemoveAll(root+"/7"))
		} else {
			write(tt.state, tt.start)
		}
		check.Equal(t, f.isSettled(), tt.settled, "%s: settled", tt.name)
	}
}
