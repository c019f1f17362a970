package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

func shimStuck(s *signals) lines {
	proven := s.chainEvidence(ShimStuck)
	if proven != nil {
		return proven
	}
	seen := s.stuckShims()
	if seen != nil {
		return seen
	}
	return s.findingEvidence(ShimStuck)
}

// stuckShims are the shims that have been stuck for long enough, else nil.
func (s *signals) stuckShims() (out lines) {
	c := s.f.Evidence.Children
	if c == nil {
		return nil
	}
	for _, shim := range c.Stuck {
		limit := blockedShim
		if shim.State == "T" || shim.State == "F" {
			limit = stoppedShim
		}
		state := cmp.Or(stateTexts[shim.State], "in state "+shim.State)
		out.addIf(s.age(shim.Since) >= limit, "pid %d (%s) %s for %s", shim.PID, shim.Comm, state, s.ago(shim.Since))
	}
	out.addIf(out != nil, "%s in all", facts.Count(c.Shims, "shim", "shims"))
	return out
}

// holdsUpCalls reports whether a call hangs for a stuck shim, by the wait chain or by the pod of an inspection.
func (s *signals) holdsUpCalls() bool {
	c := s.f.Evidence.Children
	return s.callCause == ShimStuck ||
		s.inspectionsHang && c != nil && slices.ContainsFunc(c.Stuck, s.ofHangingPod)
}

// ofHangingPod reports whether a stuck shim may serve a pod whose inspection hangs: unless it is another's.
func (s *signals) ofHangingPod(shim facts.Child) bool {
	known := false
	for _, p := range s.stalledInspections(inspectHangAfter) {
		if p.UID == shim.PodUID {
			return true
		}
		known = known || p.UID != ""
	}
	return shim.PodUID == "" || !known
}

func helperStuck(s *signals) lines {
	proven := s.chainEvidence(RuntimeHelperStuck)
	if proven != nil || s.lastAnswer.IsZero() { // what never answered may be no runtime at all
		return proven
	}
	seen := s.oldHelpers()
	if seen != nil {
		return seen
	}
	return s.findingEvidence(RuntimeHelperStuck)
}

func peerStuck(s *signals) lines {
	proven := s.chainEvidence(RuntimePeerStuck)
	if proven != nil {
		return proven
	}
	return s.findingEvidence(RuntimePeerStuck)
}

// peerHoldsUpCalls reports whether calls are late and may wait for the peer. A request of the runtime's own to a
// server, as for an image, holds up no call but its own.
func (s *signals) peerHoldsUpCalls() bool {
	f := s.finding(RuntimePeerStuck)
	isOwnRequest := f != nil && f.Chain.First().State == facts.LinkUnanswered
	return s.callsLate && (s.chainCause == RuntimePeerStuck || !isOwnRequest)
}

// oldHelpers are the helpers that have run for too long, else nil.
func (s *signals) oldHelpers() (out lines) {
	c := s.f.Evidence.Children
	if c == nil {
		return nil
	}
	for _, h := range c.Old {
		out.addIf(s.age(h.Since) >= oldHelper, "pid %d (%s) has run for %s", h.PID, h.Comm, s.ago(h.Since))
	}
	return out
}

// stalledInspections returns the inspections in flight for limit, the longest first, and those given up.
func (s *signals) stalledInspections(limit time.Duration) (out []facts.PodInspection) {
	for _, p := range slices.Concat(s.f.Relist.Inspecting, s.f.Relist.Failing) {
		if p.Err.TimedOut() || p.Err == nil && p.Waited(s.moment) >= limit {
			out = append(out, p)
		}
	}
	return out
}

func inspectionStall(s *signals) lines {
	out := s.hangingInspections()
	failing := 0
	example := ""
	for _, p := range s.f.Relist.Failing {
		if p.Err != nil && !p.Err.TimedOut() && p.Failures >= failingInspections {
			failing++
			example = fmt.Sprintf("%s: %s", p.Operation, p.Err.Code)
		}
	}
	out.addIf(failing > 0, "%s, %d times or more in a row (%s)",
		facts.Count(failing, "pod's inspection fails", "pods' inspections fail"), failingInspections, example)
	return out
}

// hangingInspections is the evidence that inspections hang: the longest, and how many were given up.
func (s *signals) hangingInspections() (out lines) {
	stalled := s.stalledInspections(inspectHangAfter)
	if len(stalled) == 0 {
		return nil
	}
	if first := stalled[0]; first.Err == nil {
		out.add("an inspection unanswered for %s (%s)", s.ago(first.CalledAt()), first.Operation)
	}
	givenUp := 0
	for _, p := range stalled {
		if p.Err != nil {
			givenUp++
		}
	}
	out.addIf(givenUp > 0, "%s got no answer before the deadline", facts.Count(givenUp, "inspection", "inspections"))
	out.text(s.modelText())
	return out
}

// podStartsFailing names the calls that start pods and fail for a reason that is not one pod's own.
func podStartsFailing(s *signals) (out lines) {
	k := cmp.Or(s.f.Evidence.Kubelet, &facts.Kubelet{})
	unknownWaiting := k.WaitingPods == nil
	waiting := 0
	if !unknownWaiting {
		waiting = *k.WaitingPods
	}
	several := waiting >= startPods
	if (unknownWaiting || waiting > 0) && s.startsFail(k.Sandboxes, several) {
		out.text(s.startsText("run_podsandbox", k.Sandboxes))
		out.addIf(several, "%d pods wait for a sandbox", waiting)
	}
	if s.startsFail(k.Containers, false) {
		out.text(s.startsText("create_container", k.Containers))
	}
	if out == nil && !s.callsLate && (unknownWaiting || several || s.provesWithoutWaiting()) {
		out = s.findingEvidence(PodStartsFailing)
	}
	if image := s.absentImage(); image != nil {
		isGone := image.At.Sub(image.AbsentSince) >= imageGone && !s.callsLate
		out.addIf(isGone || out != nil, "the sandbox image %s, from which each pod is made, has not been in the runtime's store for %s: each start must pull it",
			image.Name, s.ago(image.AbsentSince))
	}
	out.addIf(out != nil, "last answer of the runtime %s ago", s.ago(s.lastAnswer))
	return out
}

// provesWithoutWaiting reports whether the finding that pods do not start needs no pods that wait for a sandbox: it is about
// containers, or shows what holds up a start.
func (s *signals) provesWithoutWaiting() bool {
	found := s.finding(PodStartsFailing)
	return found != nil && (found.Chain.First().RuntimeID != "" || found.Chain.First().State != facts.LinkFailing)
}

// absentImage is the image of sandboxes that the runtime does not have, nil where it has it or does not say.
func (s *signals) absentImage() *facts.SandboxImage {
	image := s.f.Evidence.SandboxImage
	if s.hop != nil || image == nil || image.AbsentSince.IsZero() {
		return nil
	}
	return image
}

// imageNext is the step where the image of sandboxes is absent, "" where it is not.
func (s *signals) imageNext() string {
	image := s.absentImage()
	if image == nil || s.f.Endpoint.Path == "" {
		return ""
	}
	return fmt.Sprintf("`crictl -r unix://%s pull %s` brings the sandbox image back, or shows why it cannot be pulled.", s.f.Endpoint.Path, image.Name)
}

// podStopsFailing names the pod that has ended and is not stopped, or the calls that stop pods and fail.
func podStopsFailing(s *signals) (out lines) {
	k := cmp.Or(s.f.Evidence.Kubelet, &facts.Kubelet{})
	out = s.findingEvidence(PodStopsFailing)
	if s.callsLate {
		return out
	}
	if s.startsFail(k.Stops, true) {
		out.text(s.startsText("stop_podsandbox", k.Stops))
	}
	if s.startsFail(k.Removals, true) {
		out.text(s.startsText("remove_podsandbox", k.Removals))
	}
	return out
}

// stopNext is the step for the pod that is not stopped; "" where it is not known.
func (s *signals) stopNext() string {
	found := s.finding(PodStopsFailing)
	if found == nil {
		return ""
	}
	pod := found.Chain.First()
	const shownID = 13
	return fmt.Sprintf("Find in the runtime's log why %s is not stopped: `journalctl -u %s --since -10min | grep %s`; mostly a network plugin says why.",
		pod.Name, cmp.Or(runtimeUnit(s.f), "containerd"), pod.RuntimeID[:min(len(pod.RuntimeID), shownID)])
}

// startsFail reports whether calls of a kind fail for several pods, or as a call that runs into its deadline.
func (s *signals) startsFail(c *facts.StartCalls, several bool) bool {
	return c != nil && c.Errors >= startErrors && s.age(c.LastError) <= startRetried && (several || c.Longest >= startSlow)
}

// StartsTimeOut reports whether calls that start pods run into their deadlines.
func StartsTimeOut(k *facts.Kubelet) bool {
	isSlow := func(c *facts.StartCalls) bool { return c != nil && c.Longest >= startSlow }
	return k != nil && (isSlow(k.Sandboxes) || isSlow(k.Containers))
}

func (s *signals) startsText(operation string, c *facts.StartCalls) string {
	text := fmt.Sprintf("%s: %d calls of the kubelet failed and none succeeded for %s", operation, c.Errors, s.ago(c.Since))
	if c.Longest >= startSlow {
		text += fmt.Sprintf("; one took %s, as a call that runs into its deadline", facts.Seconds(c.Longest))
	}
	return text
}

// stateTexts describe the states of a stuck child.
var stateTexts = map[string]string{"T": "stopped", "F": "frozen", "D": "in D (uninterruptible)",
	"S": "has a thread stuck in the kernel"}
