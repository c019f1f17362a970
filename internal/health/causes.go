package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// chainValid is how long a chain counts after its last look.
const chainValid = 3 * time.Second

// chain returns the wait chain, nil for none and for an old one: that of a call counts once the call hangs.
func (w *view) chain() *facts.Chain {
	c := w.f.Evidence.Chain
	if c == nil || w.age(c.At) > chainValid {
		return nil
	}
	if call := c.First(); call.IsList() && w.hungSince.IsZero() || call.IsInspection() && !w.inspectionsHang() {
		return nil
	}
	return c
}

// containerStalledAfter is how long a list must be unanswered until a container whose lock's
// holder is not seen counts as the cause: a runtime without a CPU answers some calls late.
const containerStalledAfter = 5 * time.Second

// busServices are the names of the processes without which systemd makes no cgroup.
var busServices = map[string]bool{"dbus-daemon": true, "dbus-broker": true, "dbus-broker-lau": true, "systemd": true}

// Subject returns the process that a reason is about at the hop that the facts are of, from which a
// chain of waiting is followed while no call hangs; 0 where there is none or it is not known.
func Subject(f *facts.Facts, reason string) (pid int) {
	e, children := &f.Evidence, cmp.Or(f.Evidence.Children, &facts.Children{})
	first := func(of []facts.Child) int { return slices.Concat(of, []facts.Child{{}})[0].PID }
	switch reason {
	case RuntimeFrozen, RuntimeMemoryLimited, RuntimeStarved, RuntimeThrottled, RuntimeStorageLocked, RuntimeStorageStall,
		RuntimeThreadStuck, AcceptFDExhausted, AcceptStalled:
		return e.Process.LivePID()
	case RuntimeSocketTakenOver:
		return cmp.Or(e.Listener, &facts.Listener{}).PID
	case ShimStuck:
		return first(children.Stuck)
	case RuntimeHelperStuck:
		return first(children.Old)
	case KubeletStalled:
		return cmp.Or(e.KubeletProcess, &facts.KubeletProcess{}).PID
	}
	return 0
}

// HopPID returns the process of the first hop behind the runtime, 0 where there is none or it is not known.
func HopPID(f *facts.Facts) int {
	if len(f.Evidence.Hops) == 0 {
		return 0
	}
	return f.Evidence.Hops[0].Process.LivePID()
}

// chainCause returns the reason that the chain proves, "" for none: the one of its last link that waits for nobody.
// That the status of one pod alone hangs, for its mount or for a lock, is what PodInspectionStall says.
func (w *view) chainCause() string {
	c := w.chain()
	call, helper, shim, runtime := c.First(), c.Link(facts.KindHelper), c.Link(facts.KindShim), c.Link(facts.KindRuntime)
	isBus := func(l facts.Link) bool { return l.Kind == facts.KindProcess && busServices[l.Name] }
	switch {
	case c.Culprit() == nil || call.Kind != facts.KindCall:
	case helper != nil && slices.ContainsFunc(c.Links, isBus):
		return SystemBusStalled
	case helper != nil && w.helperMayBeSlow(helper):
	case helper != nil && (c.Link(facts.KindMount) == nil || call.IsList()):
		return RuntimeHelperStuck
	case helper != nil:
	case shim != nil && shim.State != facts.LinkUnknown:
		return ShimStuck
	case runtime != nil && runtime.State == facts.LinkPeer && (call.IsList() || call.IsInspection()):
		return RuntimeThreadStuck
	case call.IsList() && w.age(call.Since) >= containerStalledAfter &&
		(c.Link(facts.KindContainer) != nil || c.Link(facts.KindPod) != nil):
		return RuntimeListStall
	}
	return ""
}

// youngHelper is how long a helper may take on a node whose CPUs are short.
const youngHelper = 10 * time.Second

// helperMayBeSlow reports whether a helper is young and the node short of CPU: it may end by itself.
func (w *view) helperMayBeSlow(helper *facts.Link) bool {
	return w.age(helper.Since) < youngHelper && w.node.CPUSome >= cpuSome && w.busyCPUs() != ""
}

// chainSymptom returns the reason that says which call the chain begins with: it says what hangs, and not why.
func (w *view) chainSymptom() string {
	switch call := w.chain().First(); {
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
func (w *view) chainEvidence(id string) (out lines) {
	if w.chainCause() != id {
		return nil
	}
	c := w.chain()
	for _, l := range slices.Backward(c.Links) {
		out.text(linkText(&l))
	}
	out.when(c.Unknown != "", "no further: %s", c.Unknown)
	return out
}

// linkText is a link as evidence, without the name of a pod.
func linkText(l *facts.Link) string {
	switch {
	case l.Kind == facts.KindCall:
		return l.Name + " " + l.Evidence
	case l.Kind == facts.KindContainer:
		return "ContainerStatus of one container alone hangs too"
	case l.Kind == facts.KindPod:
		return "PodSandboxStatus of one pod alone hangs too"
	case l.PID != 0:
		return fmt.Sprintf("%s pid %d (%s): %s", l.Kind, l.PID, l.Name, l.Evidence)
	}
	return fmt.Sprintf("%s: %s", l.Kind, l.Evidence)
}

// chainOf returns the wait chain where it is about a reason: one of a process may be about the previous reason.
// hop is the socket of the reason's hop.
func (w *view) chainOf(id, hop string) *facts.Chain {
	c := w.chain()
	isAbout := c.First().Kind == facts.KindCall || c.First().PID == Subject(w.f.At(hop), id)
	found := w.finding(id)
	switch {
	case found != nil && (c == nil || !isAbout || w.chainCause() != id):
		return &found.Chain
	case isAbout && !w.waitsForHop(c, hop):
		return c
	}
	return nil
}

// waitsForHop reports whether the chain ends in the runtime, which waits for the hop that the reason is about.
func (w *view) waitsForHop(c *facts.Chain, hop string) bool {
	culprit := c.Culprit()
	return hop != "" && culprit != nil && culprit.Kind == facts.KindRuntime && culprit.PID == w.process.LivePID()
}

// chainNext is the first step for the culprit of the chain; "" where there is none.
func (w *view) chainNext(id, hop string) string {
	c := w.chainOf(id, hop)
	culprit := c.Culprit()
	if culprit == nil || c.First().Kind == facts.KindCall && w.chainCause() != id &&
		(c.Link(facts.KindMount) == nil || id != w.chainSymptom()) {
		return ""
	}
	return firstStep(c, culprit)
}
