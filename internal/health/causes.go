package health

import (
	"slices"
	"strings"
	"time"
)

// chainValid is how long a chain counts after its last look.
const chainValid = 3 * time.Second

// chain returns the wait chain, nil for none and for an old one. That of a call is looked for
// before the call counts as hanging, and counts from then on.
func (w *view) chain() *Chain {
	c := w.f.Evidence.Chain
	if c == nil || w.age(c.At) > chainValid {
		return nil
	}
	if len(c.Links) > 0 && (c.Links[0].isList() && w.hungSince.IsZero() ||
		c.Links[0].isInspection() && !w.inspectionsHang()) {
		return nil
	}
	return c
}

// isList reports whether a link is a list.
func (l *Link) isList() bool { return l.Kind == KindCall && strings.HasPrefix(l.Name, "list_") }

// isInspection reports whether a link is a call for the status of a pod or container.
func (l *Link) isInspection() bool { return l.Kind == KindCall && strings.HasSuffix(l.Name, "_status") }

// containerStalledAfter is how long a list must be unanswered until a container whose lock's
// holder is not seen counts as the cause: a runtime without a CPU answers some calls late.
const containerStalledAfter = 5 * time.Second

// busServices are the names of the processes without which systemd makes no cgroup.
var busServices = map[string]bool{"dbus-daemon": true, "dbus-broker": true, "dbus-broker-lau": true, "systemd": true}

// Subject returns the process that a reason is about at the hop that the facts are of, from which a chain of waiting
// is followed while no call hangs; 0 where there is none or it is not known.
func Subject(f *Facts, reason string) (pid int, kind LinkKind) {
	e := &f.Evidence
	switch reason {
	case RuntimeFrozen, RuntimeMemoryLimited, RuntimeStarved, RuntimeThrottled, RuntimeStorageLocked, RuntimeStorageStall,
		RuntimeThreadStuck, AcceptFDExhausted, AcceptStalled:
		if e.Socket != "" {
			return e.Process.pid(), KindProcess
		}
		return e.Process.pid(), KindRuntime
	case RuntimeSocketTakenOver:
		if e.Listener != nil {
			return e.Listener.PID, KindProcess
		}
	case ShimStuck:
		if e.Children != nil && len(e.Children.Stuck) > 0 {
			return e.Children.Stuck[0].PID, KindShim
		}
	case RuntimeHelperStuck:
		if e.Children != nil && len(e.Children.Old) > 0 {
			return e.Children.Old[0].PID, KindHelper
		}
	case KubeletStalled:
		if e.KubeletProcess != nil {
			return e.KubeletProcess.PID, KindProcess
		}
	}
	return 0, ""
}

// HopPID returns the process of the first hop behind the runtime, 0 where there is none
// or it is not known.
func HopPID(f *Facts) int {
	if len(f.Evidence.Hops) == 0 {
		return 0
	}
	return f.Evidence.Hops[0].Process.pid()
}

// chainCause returns the reason that the chain proves, "" for none: the one of its
// last link that waits for nobody.
func (w *view) chainCause() string {
	c := w.chain()
	if c.Culprit() == nil || c.Links[0].Kind != KindCall {
		return ""
	}
	if helper := c.Link(KindHelper); helper != nil {
		for _, l := range c.Links {
			if l.Kind == KindProcess && busServices[l.Name] {
				return SystemBusStalled
			}
		}
		if c.Link(KindMount) != nil && !c.Links[0].isList() {
			return "" // that the status of one pod hangs for its mount is what PodInspectionStall says
		}
		return RuntimeHelperStuck
	}
	if shim := c.Link(KindShim); shim != nil && shim.State != LinkUnknown {
		return ShimStuck
	}
	if c.Links[0].isList() || c.Links[0].isInspection() {
		if l := c.Link(KindRuntime); l != nil && l.State == LinkPeer {
			return RuntimeThreadStuck
		}
	}
	// That the status of one pod alone hangs is what PodInspectionStall says already.
	lasting := c.Links[0].isList() && w.age(c.Links[0].Since) >= containerStalledAfter
	if lasting && (c.Link(KindContainer) != nil || c.Link(KindPod) != nil) {
		return RuntimeListStall
	}
	return ""
}

// chainSymptom returns the reason that says which call the chain begins with: it says
// what hangs, and not why.
func (w *view) chainSymptom() string {
	c := w.chain()
	switch {
	case c == nil || len(c.Links) == 0:
		return ""
	case c.Links[0].isList():
		return RuntimeListStall
	case c.Links[0].isInspection():
		return PodInspectionStall
	case c.Links[0].Kind == KindCall && c.Links[0].Name == opStatus:
		return RuntimeNotReady
	}
	return ""
}

// chainEvidence is the wait chain as the evidence of the reason that it proves; nil for
// other reasons. It names no pod.
func (w *view) chainEvidence(id string) (out lines) {
	if w.chainCause() != id {
		return nil
	}
	c := w.chain()
	for _, l := range slices.Backward(c.Links) {
		switch {
		case l.Kind == KindCall:
			out.add("%s %s", l.Name, l.Evidence)
		case l.Kind == KindContainer:
			out.add("ContainerStatus of one container alone hangs too")
		case l.Kind == KindPod:
			out.add("PodSandboxStatus of one pod alone hangs too")
		case l.PID != 0:
			out.add("%s pid %d (%s): %s", l.Kind, l.PID, l.Name, l.Evidence)
		default:
			out.add("%s: %s", l.Kind, l.Evidence)
		}
	}
	out.when(c.Unknown != "", "no further: %s", c.Unknown)
	return out
}

// explain fills in what the chain says of the verdict.
func (v *Verdict) explain(w *view) {
	c := w.chain()
	if c == nil || len(c.Links) == 0 || !w.isAbout(c, v.Reason) {
		return
	}
	v.Chain, v.ChainEnd, v.Culprit = c.Links, c.Unknown, c.Culprit()
}

// isAbout reports whether a chain is about a reason: a chain that starts at a process
// may also be about the previous reason.
func (w *view) isAbout(c *Chain, id string) bool {
	if c.Links[0].Kind == KindCall {
		return true
	}
	pid, _ := Subject(w.f.At(w.verdict.Hop), id)
	return pid == c.Links[0].PID
}

// chainNext is the first step for the culprit of the chain, with its own values and
// with the risk of a restart of the runtime; "" where there is none.
func (w *view) chainNext(id string) string {
	c := w.chain()
	culprit := c.Culprit()
	if culprit == nil || !w.isAbout(c, id) {
		return ""
	}
	behindMount := c.Link(KindMount) != nil && id == w.chainSymptom()
	if c.Links[0].Kind == KindCall && w.chainCause() != id && !behindMount {
		return ""
	}
	return strings.TrimSpace(firstStep(c, culprit) + " " + w.restartRisk(id))
}

// restartRisk is what a restart of the runtime would do in this case.
func (w *view) restartRisk(id string) string {
	before2, since2 := w.f.Runtime.containerdBefore(2, 0)
	switch {
	case id == ShimStuck && before2:
		return "A restart of containerd now would take 15 to 19 s and call this pod's running containers EXITED."
	case id == ShimStuck && since2:
		return "A restart of containerd now would not end: it does not stop on SIGTERM while the shim is stuck."
	case id == SystemBusStalled:
		return "A restart of the runtime does not help."
	}
	return ""
}
