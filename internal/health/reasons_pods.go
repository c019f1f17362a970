package health

import (
	"fmt"
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

// podReasons speak of single pods and the processes that serve them.
var podReasons = []Reason{
	{ID: ShimStuck, Layer: LayerPods, Severity: SeverityWarning, criticalWhile: (*view).holdsUpCalls, match: shimStuck},
	{ID: RuntimeHelperStuck, Layer: LayerPods, Severity: SeverityWarning, match: helperStuck,
		criticalWhile: func(w *view) bool { return w.chainCause() == RuntimeHelperStuck }},
	{ID: PodInspectionStall, Layer: LayerPods, Severity: SeverityWarning, criticalWhile: (*view).inspectionsHang,
		match: inspectionStall},
	{ID: PodStartsFailing, Layer: LayerPods, Severity: SeverityWarning, match: podStartsFailing},
}

func shimStuck(w *view) []string {
	out := w.chainEvidence(ShimStuck)
	c := w.f.Evidence.Children
	if c == nil || out != nil {
		return out
	}
	for _, s := range c.Stuck {
		least := stoppedShim
		if s.State != "T" && s.State != "F" {
			least = blockedShim
		}
		if age := w.age(s.Since); age >= least {
			out = append(out, fmt.Sprintf("pid %d (%s) %s for %s", s.PID, s.Comm, stateText(s.State), Seconds(age)))
		}
	}
	if len(out) > 0 {
		out = append(out, Count(c.Shims, "shim", "shims")+" in all")
	}
	return out
}

// holdsUpCalls reports whether a stuck shim makes a call hang: the wait chain proves
// it, or an inspection hangs and a shim of that pod is stuck.
func (w *view) holdsUpCalls() bool {
	return w.chainCause() == ShimStuck || w.inspectionsHang() && w.shimHoldsUp()
}

func helperStuck(w *view) []string {
	out := w.chainEvidence(RuntimeHelperStuck)
	c := w.f.Evidence.Children
	if c == nil || out != nil || w.lastAnswer.IsZero() { // what never answered may be no runtime at all
		return out
	}
	for _, h := range c.Old {
		if age := w.age(h.Since); age >= oldHelper {
			out = append(out, fmt.Sprintf("pid %d (%s) has run for %s", h.PID, h.Comm, Seconds(age)))
		}
	}
	return out
}

func (w *view) inspectionsHang() bool {
	hang, givenUp := w.hangingInspections()
	return len(hang)+givenUp > 0
}

func inspectionStall(w *view) (out []string) {
	hang, givenUp := w.hangingInspections()
	if len(hang) > 0 {
		out = append(out, fmt.Sprintf("an inspection unanswered for %s (%s)", Seconds(w.age(hang[0].called())),
			hang[0].Operation))
	}
	if givenUp > 0 {
		out = append(out, Count(givenUp, "inspection", "inspections")+" got no answer before the deadline")
	}
	if len(out) > 0 {
		out = append(out, w.modelEvidence()...)
	}
	fail, message := 0, ""
	for _, p := range w.f.Relist.Failing {
		if p.Err != nil && p.Err.Code != "DeadlineExceeded" && p.Failures >= failingInspections {
			fail++
			message = fmt.Sprintf("%s: %s", p.Operation, p.Err.Code)
		}
	}
	if fail > 0 {
		out = append(out, fmt.Sprintf("%s, %d times or more in a row (%s)",
			Count(fail, "pod's inspection fails", "pods' inspections fail"), failingInspections, message))
	}
	return out
}

func podStartsFailing(w *view) (out []string) {
	k := w.f.Evidence.Kubelet
	if k == nil {
		return nil
	}
	if waiting, fails := w.sandboxesFail(k); fails {
		out = append(out, w.startText("run_podsandbox", k.Sandboxes))
		if waiting >= startPods {
			out = append(out, fmt.Sprintf("%d pods wait for a sandbox", waiting))
		}
	}
	if c := k.Containers; w.startsFail(c) && c.Longest >= startSlow {
		out = append(out, w.startText("create_container", c))
	}
	if out == nil {
		return nil
	}
	return append(out, fmt.Sprintf("last answer of the runtime %s ago", Seconds(w.age(w.lastAnswer))))
}

// sandboxesFail reports whether no sandbox can be started for a reason that is not
// one pod's own, and how many pods wait for one, as far as that is known.
func (w *view) sandboxesFail(k *Kubelet) (waiting int, fails bool) {
	known := k.WaitingPods != nil
	if known {
		waiting = *k.WaitingPods
	}
	if !w.startsFail(k.Sandboxes) || known && waiting == 0 {
		return waiting, false
	}
	return waiting, waiting >= startPods || k.Sandboxes.Longest >= startSlow
}

func (w *view) startsFail(c *StartCalls) bool {
	return c != nil && c.Errors >= startErrors && w.age(c.LastError) <= startRetried
}

func (w *view) startText(operation string, c *StartCalls) string {
	text := fmt.Sprintf("%s: %d calls of the kubelet failed and none succeeded for %s", operation, c.Errors,
		Seconds(w.age(c.Since)))
	if c.Longest >= startSlow {
		text += fmt.Sprintf("; one took %s, as a call that runs into its deadline", Seconds(c.Longest))
	}
	return text
}

func stateText(state string) string {
	switch state {
	case "T":
		return "stopped"
	case "F":
		return "frozen"
	case "D":
		return "in D (uninterruptible)"
	case "S":
		return "has a thread stuck in the kernel"
	default:
		return "in state " + state
	}
}
