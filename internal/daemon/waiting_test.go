package daemon

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/check"
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
