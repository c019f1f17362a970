package health

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plegd/plegd/internal/facts"
)

// validChain returns the wait chain, nil for none and for an old one: that of a call counts once the call hangs.
func (s *signals) validChain() *facts.Chain {
	c := s.f.Evidence.Chain
	if c == nil || s.age(c.At) > chainValid {
		return nil
	}
	call := c.First()
	isStatus := call.Kind == facts.KindCall && call.Name == opStatus
	if call.IsList() && s.hungSince.IsZero() || call.IsInspection() && !s.inspectionsHang || isStatus && s.status == statusOK {
		return nil
	}
	return c
}

// busServices are the names of the processes without which systemd makes no cgroup.
var busServices = map[string]bool{"dbus-daemon": true, "dbus-broker": true, "dbus-broker-lau": true, "systemd": true}

// Subject returns the process that a reason is about at the hop that the facts are of, from which a
// chain of waiting is followed while no call hangs; 0 where there is none or it is not known.
func Subject(f *facts.Facts, reason string) (pid int) {
	e := &f.Evidence
	children := cmp.Or(e.Children, &facts.Children{})
	switch reason {
	case RuntimeFrozen, RuntimeMemoryLimited, RuntimeStarved, RuntimeThrottled, RuntimeStorageLocked, RuntimeStorageStall,
		RuntimeThreadStuck, AcceptFDExhausted, AcceptStalled:
		return e.Process.LivePID()
	case PodStartsFailing:
		if StartsTimeOut(e.Kubelet) {
			return e.Process.LivePID()
		}
	case RuntimeSocketMissing, RuntimeNotListening:
		return preparingPID(e.Process)
	case RuntimeSocketTakenOver:
		return cmp.Or(e.Listener, &facts.Listener{}).PID
	case ShimStuck:
		return firstPID(children.Stuck)
	case RuntimeHelperStuck:
		return firstPID(children.Old)
	case KubeletStalled:
		return cmp.Or(e.KubeletProcess, &facts.KubeletProcess{}).PID
	}
	return 0
}

// preparingPID returns the command that runs before the runtime, 0 for none.
func preparingPID(p *facts.Process) int {
	if p == nil || p.Alive || p.Preparing == nil {
		return 0
	}
	return p.Preparing.PID
}

func firstPID(children []facts.Child) int {
	if len(children) == 0 {
		return 0
	}
	return children[0].PID
}

// HopPID returns the process of the first hop behind the runtime, 0 where there is none or it is not known.
func HopPID(f *facts.Facts) int {
	if len(f.Evidence.Hops) == 0 {
		return 0
	}
	return f.Evidence.Hops[0].Process.LivePID()
}

// provenByChain returns the reason that the chain proves, "" for none: the one of the final link, which is not waiting.
func (s *signals) provenByChain() string {
	c := s.chain
	call := c.First()
	if c.Culprit() == nil || call.Kind != facts.KindCall {
		return ""
	}
	helper := c.Link(facts.KindHelper)
	if helper != nil && helper.State != facts.LinkEnded {
		return s.provenHelper(c, helper)
	}
	shim := c.Link(facts.KindShim)
	runtime := c.Link(facts.KindRuntime)
	oneContainer := c.Link(facts.KindContainer) != nil || c.Link(facts.KindPod) != nil
	switch {
	case shim != nil && shim.State != facts.LinkUnknown:
		return ShimStuck
	case runtime != nil && runtime.State == facts.LinkTraced: // one of its threads is enough
		return RuntimeFrozen
	case runtime != nil && runtime.State == facts.LinkPeer && s.waitsForPeer(c):
		return RuntimeThreadStuck
	case s.hopWaitsForPeer(c):
		return RuntimePeerStuck
	case call.IsList() && s.age(call.Since) >= containerStalledAfter && oneContainer:
		return RuntimeListStall
	}
	return ""
}

// Proof returns what the chain of a call proves by a verdict, as a finding that may outlive the call: the chain from the first
// process on. ok is false where it proves nothing, or its culprit may get on by itself.
func Proof(v *facts.Verdict) (out facts.Finding, ok bool) {
	if len(v.Active) == 0 || v.Active[0].Held || v.Culprit == nil || !slices.Contains(provenByChain, v.Reason) {
		return out, false
	}
	c := facts.Chain{Links: v.Chain}
	first := slices.IndexFunc(v.Chain, func(l facts.Link) bool { return l.PID != 0 })
	if first < 0 || c.First().Kind != facts.KindCall {
		return out, false
	}
	state := v.Culprit.State
	if state != facts.LinkThrottled && !state.StandsStill() {
		return out, false
	}
	c.Links = v.Chain[first:]
	return facts.Finding{Reason: v.Reason, Since: v.Active[0].Since, Chain: c, Call: v.Chain[0].Name}, true
}

// HoldsUp reports whether a reason may be the cause of another one that is active.
func HoldsUp(v *facts.Verdict, cause string) bool {
	return slices.ContainsFunc(v.Active, func(a facts.Active) bool {
		return slices.Contains(reasonOf(a.ID).CausedBy, cause)
	})
}

// earlierCause returns the reason of a finding that has held up a call before, "" for none.
func (s *signals) earlierCause() string {
	for _, f := range s.f.Evidence.Findings {
		if f.Call != "" && s.finding(f.Reason) != nil {
			return f.Reason
		}
	}
	return ""
}

// waitsForPeer reports whether the call of a chain waits for another process than the runtime and those behind it:
// these have reasons of their own, and so has a runtime that has used up its descriptors.
func (s *signals) waitsForPeer(c *facts.Chain) bool {
	call := c.First()
	isHop := func(l facts.Link) bool { return l.PID != 0 && slices.Contains(s.hopPIDs(), l.PID) }
	isEvery := call.Name == facts.EveryCall && !s.process.FDsExhausted() && !slices.ContainsFunc(c.Links, isHop)
	return call.IsList() || call.IsInspection() || isEvery
}

// hopWaitsForPeer reports whether a hop behind the runtime waits for a process that is none, as dockerd
// does for a plugin.
func (s *signals) hopWaitsForPeer(c *facts.Chain) bool {
	hops := s.hopPIDs()
	waits := func(l facts.Link) bool {
		return slices.Contains(hops, l.PID) && (l.State == facts.LinkPeer || l.State == facts.LinkUnanswered)
	}
	i := slices.IndexFunc(c.Links, waits)
	return i >= 0 && i+1 < len(c.Links) && c.Links[i+1].PID != 0 && !slices.Contains(hops, c.Links[i+1].PID)
}

// hopPIDs returns the processes behind the runtime.
func (s *signals) hopPIDs() (out []int) {
	for i := range s.f.Evidence.Hops {
		out = append(out, s.f.Evidence.Hops[i].Process.LivePID())
	}
	return out
}

// provenHelper returns the reason that a chain with a helper proves. That the status of one pod alone hangs for its
// mount is PodInspectionStall.
func (s *signals) provenHelper(c *facts.Chain, helper *facts.Link) string {
	isBus := func(l facts.Link) bool { return l.Kind == facts.KindProcess && busServices[l.Name] }
	switch {
	case slices.ContainsFunc(c.Links, isBus):
		return SystemBusStalled
	case s.helperMayBeSlow(helper):
		return ""
	case c.Link(facts.KindMount) == nil || c.First().IsList():
		return RuntimeHelperStuck
	}
	return ""
}

// helperMayBeSlow reports whether a helper is young and the node short of CPU: it may end by itself.
func (s *signals) helperMayBeSlow(helper *facts.Link) bool {
	return s.age(helper.Since) < youngHelper && s.node.CPUSome >= cpuSome && s.busyCPUs != ""
}

// symptomOfCall returns the reason that states which call hangs, and not why; "" for none.
func symptomOfCall(call *facts.Link) string {
	switch {
	case call.IsList():
		return RuntimeListStall
	case call.IsInspection():
		return PodInspectionStall
	case call.Kind == facts.KindCall && call.Name == opStatus:
		return RuntimeNotReady
	}
	return ""
}

// chainEvidence is the wait chain as the evidence of the reason that it proves, without names of pods, else nil.
func (s *signals) chainEvidence(id string) lines {
	if s.chainCause != id {
		return nil
	}
	return chainLines(s.chain)
}

// chainLines is a chain of waiting as evidence, from the culprit on, without names of pods.
func chainLines(c *facts.Chain) (out lines) {
	for _, l := range slices.Backward(c.Links) {
		out.text(linkText(&l))
	}
	out.addIf(c.Unknown != "", "no further: %s", c.Unknown)
	return out
}

// linkText is a link as evidence, without the name of a pod.
func linkText(l *facts.Link) string {
	switch {
	case l.Kind == facts.KindCall:
		return l.Name + " " + l.Evidence
	case l.Kind == facts.KindContainer:
		return "ContainerStatus of one container alone hangs too"
	case l.Kind == facts.KindPod && l.State == facts.LinkFailing:
		return "a pod " + l.Evidence
	case l.Kind == facts.KindPod:
		return "PodSandboxStatus of one pod alone hangs too"
	case l.PID != 0:
		return fmt.Sprintf("%s pid %d (%s): %s", l.Kind, l.PID, l.Name, l.Evidence)
	}
	return fmt.Sprintf("%s: %s", l.Kind, l.Evidence)
}

// chainOf returns the wait chain where it is about a reason: one of a process may be about the previous reason.
// hop is the socket of the reason's hop, found the finding there that proves it.
func (s *signals) chainOf(id, hop string, found *facts.Finding) *facts.Chain {
	c := s.chain
	isAbout := c.First().Kind == facts.KindCall || c.First().PID == Subject(s.f.At(hop), id)
	switch {
	case found != nil && (c == nil || !isAbout || s.chainCause != id):
		return &found.Chain
	case isAbout && !s.waitsForHop(c, hop) && !s.provesAnother(id):
		return c
	}
	return nil
}

// provesAnother reports whether the wait chain proves another reason, which is not the cause of this one.
func (s *signals) provesAnother(id string) bool {
	if id == "" || s.chainCause == "" || s.chainCause == id {
		return false
	}
	return !slices.Contains(reasonOf(id).CausedBy, s.chainCause)
}

// waitsForHop reports whether the chain ends in the runtime, which waits for the hop that the reason is about.
func (s *signals) waitsForHop(c *facts.Chain, hop string) bool {
	culprit := c.Culprit()
	return hop != "" && culprit != nil && culprit.Kind == facts.KindRuntime && culprit.PID == s.process.LivePID()
}

// chainNext is the first step for the culprit of the chain that is about a reason; "" where there is none.
func (s *signals) chainNext(id string, c *facts.Chain) string {
	culprit := c.Culprit()
	if culprit == nil || c.First().Kind == facts.KindCall && s.chainCause != id && !explains(c, id) {
		return ""
	}
	return firstStep(c, culprit)
}

// explains reports whether the chain of a call explains a reason that it does not prove: the symptom of that call where
// it leads to a mount, and RuntimeStorageStall where a thread of the runtime waits in the kernel.
func explains(c *facts.Chain, id string) bool {
	runtime := c.Link(facts.KindRuntime)
	if id == RuntimeStorageStall {
		return runtime != nil && runtime.State == facts.LinkBlocked
	}
	return c.Link(facts.KindMount) != nil && id == symptomOfCall(c.First())
}

// finding returns what proves a reason without a call that hangs: the kernel's kills, or the oldest finding of the ledger,
// which is about the runtime alone; nil for none.
func (s *signals) finding(id string) *facts.Finding {
	if id == RuntimeMemoryLimited {
		return s.killFinding()
	}
	all := s.f.Evidence.Findings
	i := slices.IndexFunc(all, func(f facts.Finding) bool {
		return f.Reason == id && s.age(f.Chain.At) <= findingValid
	})
	if s.hop != nil || i < 0 {
		return nil
	}
	return &all[i]
}

// findingEvidence is the chain of the finding that proves a reason, from the culprit on, else nil.
func (s *signals) findingEvidence(id string) lines {
	f := s.finding(id)
	if f == nil {
		return nil
	}
	out := chainLines(&f.Chain)
	out.add("for %s", s.ago(f.Since))
	return out
}
