package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// chainValid is how long a chain counts after its last look.
const chainValid = 3 * time.Second

// chain returns the chain of waiting that the evidence holds, nil where it has none
// or where it is too old to be true still.
func (w *view) chain() *Chain {
	c := w.f.Evidence.Chain
	if c == nil || w.age(c.At) > chainValid {
		return nil
	}
	return c
}

// busServices are the names of the processes without which systemd makes no cgroup.
var busServices = map[string]bool{"dbus-daemon": true, "dbus-broker": true, "dbus-broker-lau": true, "systemd": true}

// symptoms are the reasons that say which call hangs, and not why.
var symptoms = []string{RuntimeListStall, PodInspectionStall}

// suffered are the reasons that say what the kubelet suffers, the first one first.
var suffered = []string{RuntimeUnresponsive, RuntimeListStall, PodInspectionStall}

// chainCause returns the reason that the chain proves, "" for none: the one of its
// last link that waits for nobody.
func (w *view) chainCause() string {
	c := w.chain()
	if c.Culprit() == nil {
		return ""
	}
	if helper := c.Link(KindHelper); helper != nil {
		for _, l := range c.Links {
			if l.Kind == KindProcess && busServices[l.Name] {
				return SystemBusStalled
			}
		}
		return RuntimeHelperStuck
	}
	if shim := c.Link(KindShim); shim != nil && shim.State != LinkUnknown {
		return ShimStuck
	}
	// That the status of one pod alone hangs is what PodInspectionStall says already.
	if strings.HasPrefix(c.Links[0].Name, "list_") && (c.Link(KindContainer) != nil || c.Link(KindPod) != nil) {
		return ContainerStalled
	}
	return ""
}

// chainEvidence is the chain as the evidence of the reason that it proves; nil for
// other reasons. It names no pod: what is said of a container is that it is one.
func (w *view) chainEvidence(id string) []string {
	if w.chainCause() != id {
		return nil
	}
	var out []string
	c := w.chain()
	for i := len(c.Links) - 1; i >= 0; i-- {
		l := &c.Links[i]
		switch l.Kind {
		case KindCall:
			out = append(out, l.Name+" "+l.Evidence)
		case KindContainer, KindPod:
			out = append(out, fmt.Sprintf("%s of one %s alone hangs too", statusCall(l.Kind), l.Kind))
		default:
			who := string(l.Kind)
			if l.PID != 0 {
				who = fmt.Sprintf("%s pid %d (%s)", l.Kind, l.PID, l.Name)
			}
			out = append(out, who+": "+l.Evidence)
		}
	}
	if c.Unknown != "" {
		out = append(out, "no further: "+c.Unknown)
	}
	return out
}

func statusCall(kind LinkKind) string {
	if kind == KindPod {
		return "PodSandboxStatus"
	}
	return "ContainerStatus"
}

// explain fills in what the chain says of the verdict.
func (v *Verdict) explain(w *view) {
	c := w.chain()
	if c == nil {
		return
	}
	v.Chain, v.ChainEnd, v.Culprit = c.Links, c.Unknown, c.Culprit()
}

// chainNext is the first step for the culprit of the chain, with its own values and
// with the risk of a restart of the runtime; "" where there is none.
func (w *view) chainNext(id string) string {
	if w.chainCause() != id {
		return ""
	}
	c := w.chain()
	culprit := c.Culprit()
	return strings.TrimSpace(firstStep(c, culprit) + " " + w.restartRisk(id))
}

// firstStep is what to do about a culprit.
func firstStep(c *Chain, culprit *Link) string {
	who := fmt.Sprintf("pid %d (%s)", culprit.PID, culprit.Name)
	switch culprit.State {
	case LinkStopped:
		return fmt.Sprintf("`kill -CONT %d` continues the stopped %s (%s) and with it all that waits.", culprit.PID, kindText(culprit.Kind), culprit.Name)
	case LinkTraced, LinkLoop:
		return fmt.Sprintf("Look at %s: it %s.", who, culprit.Evidence)
	case LinkFrozen:
		if culprit.Kind == KindMount {
			return fmt.Sprintf("Thaw the file system: `fsfreeze -u %s`.", culprit.Name)
		}
		return fmt.Sprintf("Thaw the cgroup %s.", culprit.Name)
	case LinkBlocked:
		return fmt.Sprintf("Look at the %s %s: %s.", kindText(culprit.Kind), culprit.Name, culprit.Evidence)
	case LinkMemory, LinkThrottled:
		return fmt.Sprintf("Raise the limit of the cgroup %s: %s.", culprit.Name, culprit.Evidence)
	}
	if helper := c.Link(KindHelper); helper != nil {
		return fmt.Sprintf("See what %s waits for; `kill %d` ends the helper, and the runtime reports the error.", who, helper.PID)
	}
	if culprit.Kind == KindShim {
		return fmt.Sprintf("`kill -9 %d` ends the shim that does not answer, and its pod with it, which is made again.", culprit.PID)
	}
	return ""
}

func kindText(k LinkKind) string {
	if k == KindMount {
		return "mount"
	}
	return string(k)
}

// restartRisk is what a restart of the runtime would do in this case.
func (w *view) restartRisk(id string) string {
	switch {
	case id == ShimStuck && anyIncludes([]Versions{containerd16, containerd17}, w.f.Runtime):
		return "A restart of containerd now would take 15 to 19 s and call this pod's running containers EXITED."
	case id == ShimStuck && containerdFrom20.includes(w.f.Runtime):
		return "A restart of containerd now would not end: it does not stop on SIGTERM while the shim is stuck."
	case id == SystemBusStalled:
		return "A restart of the runtime does not help."
	}
	return ""
}

// chainReasons are those that only a chain of waiting proves.
var chainReasons = []Reason{
	{
		ID: SystemBusStalled, Severity: SeverityCritical,
		Meaning:  "systemd or dbus-daemon does not answer, and runc waits for it: no container can be started or changed.",
		Needs:    "a call hangs, a helper of the runtime is what it waits for, and the helper waits for systemd or dbus-daemon.",
		Outranks: slices.Concat([]string{RuntimeHelperStuck, ShimStuck, PodInspectionStall, PodInspectionFailing}, load),
		Next:     "Get systemd or dbus-daemon to answer; a restart of the runtime does not help.",
		Steps: []string{
			"`busctl status` hangs as long as the bus does.",
			"`ps -o pid,stat,wchan:32,etime,args -C dbus-daemon`: T is stopped (`kill -CONT PID`), D waits for the disk.",
			"`systemctl status` says whether systemd itself answers.",
		},
		Restart: HelpsNo, RestartNote: "Its containers wait for the same bus after it.",
		match: func(w *view) []string { return w.chainEvidence(SystemBusStalled) },
		next:  func(w *view) string { return w.chainNext(SystemBusStalled) },
	},
	{
		ID: ContainerStalled, Severity: SeverityCritical,
		Meaning: "One container's lock holds up a list: the container is known, the process that holds it is not.",
		Needs:   "a list hangs, others are answered, the status of one known container alone hangs too, and its shim shows no cause.",
		Next:    "`plegd status` names the container; look at its shim and at the runtime's log for it before you restart the runtime.",
		Steps: []string{
			"`crictl inspect` of that container hangs; the others answer.",
			"`kill -USR1 {pid}` of containerd makes it write its goroutine stacks to its log and continue: keep them for the bug report.",
			"`systemctl restart {unit}` releases a lock that is held inside the runtime.",
		},
		Outranks: slices.Concat([]string{PodInspectionStall, PodInspectionFailing}, load),
		Restart:  HelpsMaybe, RestartNote: "It releases a lock that is held inside the runtime. It does not help where the container's shim is stuck in a way that plegd may not see.",
		match: func(w *view) []string { return w.chainEvidence(ContainerStalled) },
	},
}
