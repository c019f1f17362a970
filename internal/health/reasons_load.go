package health

import (
	"fmt"
	"time"
)

const (
	// SlowListThreshold is what both lists may take together; RelistSlow needs
	// two relists in a row above it, and ends below slowStill of it.
	SlowListThreshold = 2 * time.Second
	slowStill         = 0.5
	// SlowRelistThreshold is what a relist may take call after call: the usual
	// alert on the kubelet's relist duration is at 10 s.
	SlowRelistThreshold = 10 * time.Second
	// burstPods pods that changed at once make a relist slow once their inspections
	// take burstTakes.
	burstPods  = 50
	burstTakes = 5 * time.Second

	tooManyContainers = 5000
	tooManyStill      = 0.9 // it ends below this share
	// limitNear is the share of a limit from which it counts as near, limitCalm
	// the one below which that ends.
	limitNear = 0.8
	limitCalm = 0.75
	// messageLimit is the largest answer that the kubelet accepts
	// (k8s.io/cri-client, maxMsgSize).
	messageLimit = 16 << 20

	// streamFailures is how often the event stream must have failed: as often as the
	// kubelet tries (eventedPlegMaxStreamRetries).
	streamFailures = 5
	phaseBroken    = "broken"
)

// loadReasons speak of load and of limits that come near.
var loadReasons = []Reason{
	{ID: RelistSlow, Layer: LayerHints, Severity: SeverityWarning, criticalWhile: (*view).relistRuleFails,
		match: relistSlow},
	{ID: FDsRunningOut, hops: true, Layer: LayerHints, Severity: SeverityWarning, match: fdsRunningOut},
	{ID: TooManyContainers, Layer: LayerHints, Severity: SeverityWarning, gradual: true, match: tooMany},
	{ID: EventStreamBroken, Layer: LayerHints, Severity: SeverityWarning, match: eventStreamBroken},
}

func relistSlow(w *view) (out []string) {
	lists, in, last := w.f.Relist.Lists, w.f.Relist.InFlight, w.f.Relist.Last
	if n := len(lists); n > 1 && w.near(RelistSlow, min(lists[n-1], lists[n-2]).Seconds(), SlowListThreshold.Seconds(),
		1, slowStill) {
		out = append(out, fmt.Sprintf("the lists of the last relist took %s", Seconds(lists[n-1])))
	}
	if last != nil && last.Err == nil {
		inspections := last.Serial - last.ListPodSandbox - last.ListContainers
		if inspections > SlowRelistThreshold || last.Inspected >= burstPods && last.Serial >= burstTakes {
			out = append(out, fmt.Sprintf("the last relist's calls take %s one after another (%s inspected)",
				Seconds(last.Serial), Count(last.Inspected, "pod", "pods")))
		}
	}
	if in != nil && in.Phase == PhaseInspect && in.Pods >= burstPods && w.age(in.PhaseStart) >= burstTakes {
		out = append(out, fmt.Sprintf("%d of %d pods inspected in %s", in.Inspected, in.Pods, Seconds(w.age(in.PhaseStart))))
	}
	burst := w.inspecting() >= burstTakes && float64(w.f.Modelled.Inspecting) >= w.band(RelistSlow, burstPods, 1)
	if burst || w.inspecting() > SlowRelistThreshold {
		out = append(out, w.modelEvidence()...)
	}
	if t := w.f.Modelled.LastSeenBefore136; out != nil && !t.IsZero() {
		out = append(out, fmt.Sprintf("a kubelet before 1.36 lists again for each changed pod, and was last seen %s ago; "+
			"this one's version is not known", Seconds(w.age(t))))
	}
	return out
}

// relistRuleFails reports whether the kubelet's relist is too old: then slowness has
// turned the node NotReady.
func (w *view) relistRuleFails() bool { return !w.starting && !w.kubelet.plegHealthy }

// modelEvidence says how long the kubelet's relist takes by now.
func (w *view) modelEvidence() []string {
	m := w.f.Modelled
	if w.inspecting() < inspectHangAfter {
		return nil
	}
	s := "the kubelet, one call after another, has been inspecting for " + Seconds(w.inspecting())
	if m.Inspecting > 0 {
		s += fmt.Sprintf(", with %s to go", Count(m.Inspecting, "pod", "pods"))
	}
	return []string{s}
}

// inspecting is how long the modelled kubelet has been inspecting pods in its
// relist under way.
func (w *view) inspecting() time.Duration {
	if w.f.Modelled.InspectingSince.IsZero() {
		return 0
	}
	return w.age(w.f.Modelled.InspectingSince)
}

func fdsRunningOut(w *view) []string {
	p := w.f.Evidence.Process
	if p == nil || !p.Alive || p.OpenFDs < 0 || p.MaxFDs <= 0 || w.noDescriptor() {
		return nil
	}
	if !w.near(FDsRunningOut, float64(p.OpenFDs), float64(p.MaxFDs), limitNear, limitCalm) {
		return nil
	}
	return []string{fmt.Sprintf("fds %d of %d", p.OpenFDs, p.MaxFDs)}
}

func tooMany(w *view) (out []string) {
	n := w.f.Pods.total()
	for _, op := range []Phase{PhaseListPodSandbox, PhaseListContainers} {
		c := w.f.Calls[string(op)]
		if c.LastErr != nil && c.LastErr.TooMany && c.LastFailed.After(c.LastOK) {
			return []string{fmt.Sprintf("%s: %s; %d bytes", op, c.LastErr.Message, c.Bytes),
				"what runs here is as plegd last knew it"}
		}
		if c.Bytes > messageLimit || !w.near(TooManyContainers, float64(c.Bytes), messageLimit, limitNear, limitCalm) {
			continue
		}
		out = append(out, fmt.Sprintf("%s is %d of %d bytes", op, c.Bytes, messageLimit))
		if op == PhaseListContainers && n > 0 {
			out = append(out, fmt.Sprintf("%d containers of %d bytes; %d more fit", n, c.Bytes/n,
				(messageLimit-c.Bytes)/max(c.Bytes/n, 1)))
		}
	}
	if w.near(TooManyContainers, float64(n), tooManyContainers, 1, tooManyStill) {
		out = append(out, fmt.Sprintf("%d containers", n))
	}
	return out
}

func eventStreamBroken(w *view) []string {
	e := w.f.Events
	if e == nil || e.Phase != phaseBroken || w.f.Relist.Failures > 0 {
		return nil
	}
	if !e.FellBack && e.Failures < streamFailures {
		return nil
	}
	out := []string{fmt.Sprintf("the event stream has failed %d times, the last %s ago", e.Failures,
		Seconds(w.age(e.LastFailed)))}
	if e.LastErr != nil {
		out = append(out, fmt.Sprintf("%s: %s", e.LastErr.Code, e.LastErr.Message))
	}
	if e.FellBack {
		out = append(out, fmt.Sprintf("plegd relists every %s until a stream holds", w.f.Config.RelistPeriod))
	}
	return out
}
