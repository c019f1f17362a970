package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

const (
	stoppedShim        = 300 * time.Millisecond
	blockedShim        = 10 * time.Second
	oldHelper          = 30 * time.Second
	failingInspections = 2 // how often in a row a pod's inspection must fail
	// startErrors calls in a row must have failed, one of them after startSlow: a fault of one pod fails at once.
	startErrors = 3
	startSlow   = 10 * time.Second
	startPods   = 2 // how many pods must wait for a sandbox where all fail at once
	// startRetried is how long a failure counts: the kubelet tries each pod again after 10 to 15 s.
	startRetried = time.Minute
)

func shimStuck(w *view) lines {
	proven := w.chainEvidence(ShimStuck)
	if proven != nil {
		return proven
	}
	seen := w.stuckShims()
	if seen != nil {
		return seen
	}
	return w.findingEvidence(ShimStuck)
}

// stuckShims are the shims that have been stuck for long enough, else nil.
func (w *view) stuckShims() (out lines) {
	c := w.f.Evidence.Children
	if c == nil {
		return nil
	}
	for _, s := range c.Stuck {
		least := stoppedShim
		if s.State != "T" && s.State != "F" {
			least = blockedShim
		}
		state := cmp.Or(stateTexts[s.State], "in state "+s.State)
		out.when(w.age(s.Since) >= least, "pid %d (%s) %s for %s", s.PID, s.Comm, state, w.ago(s.Since))
	}
	out.when(out != nil, "%s in all", facts.Count(c.Shims, "shim", "shims"))
	return out
}

// holdsUpCalls reports whether a call hangs for a stuck shim, by the wait chain or by the pod of an inspection.
func (w *view) holdsUpCalls() bool {
	c := w.f.Evidence.Children
	return w.chainCause() == ShimStuck ||
		w.inspectionsHang() && c != nil && slices.ContainsFunc(c.Stuck, w.ofHangingPod)
}

// ofHangingPod reports whether a stuck shim may serve a pod whose inspection hangs: unless it is another's.
func (w *view) ofHangingPod(s facts.Child) bool {
	known := false
	for _, p := range w.stalledInspections(inspectHangAfter) {
		if p.UID == s.PodUID {
			return true
		}
		known = known || p.UID != ""
	}
	return s.PodUID == "" || !known
}

func helperStuck(w *view) lines {
	proven := w.chainEvidence(RuntimeHelperStuck)
	if proven != nil || w.lastAnswer.IsZero() { // what never answered may be no runtime at all
		return proven
	}
	seen := w.oldHelpers()
	if seen != nil {
		return seen
	}
	return w.findingEvidence(RuntimeHelperStuck)
}

// oldHelpers are the helpers that have run for too long, else nil.
func (w *view) oldHelpers() (out lines) {
	c := w.f.Evidence.Children
	if c == nil {
		return nil
	}
	for _, h := range c.Old {
		out.when(w.age(h.Since) >= oldHelper, "pid %d (%s) has run for %s", h.PID, h.Comm, w.ago(h.Since))
	}
	return out
}

func (w *view) helperHoldsUp() bool { return w.chainCause() == RuntimeHelperStuck }

func busStalled(w *view) lines { return w.chainEvidence(SystemBusStalled) }

// stalledInspections returns the inspections under way for that long, the longest first, and those given up.
func (w *view) stalledInspections(least time.Duration) (out []facts.PodInspection) {
	for _, p := range slices.Concat(w.f.Relist.Inspecting, w.f.Relist.Failing) {
		if p.Err.TimedOut() || p.Err == nil && w.age(p.CalledAt()) >= least {
			out = append(out, p)
		}
	}
	return out
}

func (w *view) inspectionsHang() bool { return len(w.stalledInspections(inspectHangAfter)) > 0 }

func inspectionStall(w *view) (out lines) {
	givenUp := 0
	for i, p := range w.stalledInspections(inspectHangAfter) {
		if p.Err != nil {
			givenUp++
		} else if i == 0 {
			out.add("an inspection unanswered for %s (%s)", w.ago(p.CalledAt()), p.Operation)
		}
	}
	out.when(givenUp > 0, "%s got no answer before the deadline", facts.Count(givenUp, "inspection", "inspections"))
	if out != nil {
		out.text(w.modelText())
	}
	fail, message := 0, ""
	for _, p := range w.f.Relist.Failing {
		if p.Err != nil && !p.Err.TimedOut() && p.Failures >= failingInspections {
			fail++
			message = fmt.Sprintf("%s: %s", p.Operation, p.Err.Code)
		}
	}
	out.when(fail > 0, "%s, %d times or more in a row (%s)",
		facts.Count(fail, "pod's inspection fails", "pods' inspections fail"), failingInspections, message)
	return out
}

// podStartsFailing names the calls that start pods and fail for a reason that is not one pod's own.
func podStartsFailing(w *view) (out lines) {
	k, waiting := cmp.Or(w.f.Evidence.Kubelet, &facts.Kubelet{}), -1 // not known
	if k.WaitingPods != nil {
		waiting = *k.WaitingPods
	}
	fail := func(operation string, c *facts.StartCalls, all bool) bool {
		if c == nil || c.Errors < startErrors || w.age(c.LastError) > startRetried || !all && c.Longest < startSlow {
			return false
		}
		text := fmt.Sprintf("%s: %d calls of the kubelet failed and none succeeded for %s", operation, c.Errors,
			w.ago(c.Since))
		if c.Longest >= startSlow {
			text += fmt.Sprintf("; one took %s, as a call that runs into its deadline", facts.Seconds(c.Longest))
		}
		out.text(text)
		return true
	}
	if waiting != 0 && fail("run_podsandbox", k.Sandboxes, waiting >= startPods) {
		out.when(waiting >= startPods, "%d pods wait for a sandbox", waiting)
	}
	fail("create_container", k.Containers, false)
	out.when(out != nil, "last answer of the runtime %s ago", w.ago(w.lastAnswer))
	return out
}

// stateTexts describe the states of a stuck child.
var stateTexts = map[string]string{"T": "stopped", "F": "frozen", "D": "in D (uninterruptible)",
	"S": "has a thread stuck in the kernel"}
