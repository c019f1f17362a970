package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	stoppedShim = 300 * time.Millisecond
	blockedShim = 10 * time.Second
	oldHelper   = 30 * time.Second
	// failingInspections is how often in a row a pod's inspection must fail.
	failingInspections = 2
	// startErrors is the number of consecutive calls that must have failed, startSlow the
	// minimum duration of one of them: a fault of one pod fails at once.
	startErrors = 3
	startSlow   = 10 * time.Second
	// startPods is how many pods must wait for a sandbox where all fail at once.
	startPods = 2
	// startRetried is how long after the last failure a reason still counts: the
	// kubelet tries each pod again after 10 to 15 s.
	startRetried = time.Minute
)

func shimStuck(w *view) lines {
	out, c := w.chainEvidence(ShimStuck), w.f.Evidence.Children
	if c == nil || out != nil {
		return out
	}
	for _, s := range c.Stuck {
		least := stoppedShim
		if s.State != "T" && s.State != "F" {
			least = blockedShim
		}
		state := cmp.Or(stateTexts[s.State], "in state "+s.State)
		out.when(w.age(s.Since) >= least, "pid %d (%s) %s for %s", s.PID, s.Comm, state, w.ago(s.Since))
	}
	out.when(out != nil, "%s in all", Count(c.Shims, "shim", "shims"))
	return out
}

// holdsUpCalls reports whether a stuck shim makes a call hang: the wait chain proves
// it, or an inspection hangs and a shim of that pod is stuck.
func (w *view) holdsUpCalls() bool {
	c := w.f.Evidence.Children
	return w.chainCause() == ShimStuck ||
		w.inspectionsHang() && c != nil && slices.ContainsFunc(c.Stuck, w.ofHangingPod)
}

// ofHangingPod reports whether a stuck shim may serve a pod whose inspection hangs: false
// where both pods are known, and another pod's shim is stuck.
func (w *view) ofHangingPod(s Child) bool {
	known := false
	for _, p := range slices.Concat(w.f.Relist.Inspecting, w.f.Relist.Failing) {
		hangs := p.Err == nil && w.age(p.called()) >= inspectHangAfter
		if !hangs && !p.Err.timedOut() {
			continue
		}
		if p.UID == s.PodUID {
			return true
		}
		known = known || p.UID != ""
	}
	return s.PodUID == "" || !known
}

func helperStuck(w *view) lines {
	out, c := w.chainEvidence(RuntimeHelperStuck), w.f.Evidence.Children
	if c == nil || out != nil || w.lastAnswer.IsZero() { // what never answered may be no runtime at all
		return out
	}
	for _, h := range c.Old {
		out.when(w.age(h.Since) >= oldHelper, "pid %d (%s) has run for %s", h.PID, h.Comm, w.ago(h.Since))
	}
	return out
}

func (w *view) helperHoldsUp() bool { return w.chainCause() == RuntimeHelperStuck }

func busStalled(w *view) lines { return w.chainEvidence(SystemBusStalled) }

// hangingInspections returns the longest inspection with a call that is unanswered for long
// enough, nil for none, and how many were given up for it.
func (w *view) hangingInspections() (hang *PodInspection, givenUp int) {
	hangs := func(p PodInspection) bool { return w.age(p.called()) >= inspectHangAfter }
	if i := slices.IndexFunc(w.f.Relist.Inspecting, hangs); i >= 0 {
		hang = &w.f.Relist.Inspecting[i]
	}
	for _, p := range w.f.Relist.Failing {
		if p.Err.timedOut() {
			givenUp++
		}
	}
	return hang, givenUp
}

func (w *view) inspectionsHang() bool {
	hang, givenUp := w.hangingInspections()
	return hang != nil || givenUp > 0
}

func inspectionStall(w *view) (out lines) {
	hang, givenUp := w.hangingInspections()
	if hang != nil {
		out.add("an inspection unanswered for %s (%s)", w.ago(hang.called()), hang.Operation)
	}
	out.when(givenUp > 0, "%s got no answer before the deadline", Count(givenUp, "inspection", "inspections"))
	if out != nil {
		out.text(w.modelText())
	}
	fail, message := 0, ""
	for _, p := range w.f.Relist.Failing {
		if p.Err != nil && !p.Err.timedOut() && p.Failures >= failingInspections {
			fail++
			message = fmt.Sprintf("%s: %s", p.Operation, p.Err.Code)
		}
	}
	out.when(fail > 0, "%s, %d times or more in a row (%s)",
		Count(fail, "pod's inspection fails", "pods' inspections fail"), failingInspections, message)
	return out
}

// podStartsFailing names the calls that start pods and fail for a reason that is not one pod's own.
func podStartsFailing(w *view) (out lines) {
	k := w.f.Evidence.Kubelet
	if k == nil {
		return nil
	}
	waiting, known := 0, k.WaitingPods != nil
	if known {
		waiting = *k.WaitingPods
	}
	if s := k.Sandboxes; w.startsFail(s) && (!known || waiting > 0) && (waiting >= startPods || s.Longest >= startSlow) {
		out.text(w.startText("run_podsandbox", s))
		out.when(waiting >= startPods, "%d pods wait for a sandbox", waiting)
	}
	if c := k.Containers; w.startsFail(c) && c.Longest >= startSlow {
		out.text(w.startText("create_container", c))
	}
	out.when(out != nil, "last answer of the runtime %s ago", w.ago(w.lastAnswer))
	return out
}

func (w *view) startsFail(c *StartCalls) bool {
	return c != nil && c.Errors >= startErrors && w.age(c.LastError) <= startRetried
}

func (w *view) startText(operation string, c *StartCalls) string {
	text := fmt.Sprintf("%s: %d calls of the kubelet failed and none succeeded for %s", operation, c.Errors,
		w.ago(c.Since))
	if c.Longest >= startSlow {
		text += fmt.Sprintf("; one took %s, as a call that runs into its deadline", Seconds(c.Longest))
	}
	return text
}

// stateTexts describe the states of a stuck child.
var stateTexts = map[string]string{"T": "stopped", "F": "frozen", "D": "in D (uninterruptible)",
	"S": "has a thread stuck in the kernel"}
