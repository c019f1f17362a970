package health

import "fmt"

// podReasons speak of single pods and of load.
var podReasons = []Reason{
	{
		ID: PodInspectionStall, Severity: SeverityCritical,
		Meaning:  "The lists work, but asking for one pod's status hangs: the kubelet waits up to two minutes for each such pod, two of them turn the node NotReady.",
		Needs:    "PodSandboxStatus or ContainerStatus of a pod is unanswered, or was given up at --inspect-timeout.",
		Numbers:  "unanswered for 3s; given up after --inspect-timeout (10s).",
		Outranks: []string{PodInspectionFailing, RelistSlow},
		Next:     "Look at the pods named by `plegd status`: their shim or conmon is stuck.",
		Steps: []string{
			"`plegd status`: the stuck pods by name, slowest first.",
			"`ps -eo pid,stat,wchan:32,etime,args | grep -e shim -e conmon`: T is stopped, D waits for the disk.",
			"`crictl inspect CONTAINER` hangs for the one that is stuck.",
			"Killing that pod's shim ends it; the pod is lost and made anew.",
		},
		Restart: HelpsMaybe, RestartNote: "A stuck shim outlives the runtime's restart, and can hold up its start.",
		match: func(w *view) []string {
			var out []string
			stuck := 0
			for _, p := range w.f.Relist.Inspecting {
				if w.age(p.Start) >= inspectHangAfter {
					if stuck == 0 {
						out = append(out, fmt.Sprintf("an inspection unanswered for %s (%s)", short(w.age(p.Start)), p.Operation))
					}
					stuck++
				}
			}
			cut := 0
			for _, p := range w.f.Relist.Failing {
				if p.Err != nil && p.Err.Code == "DeadlineExceeded" {
					cut++
				}
			}
			if cut > 0 {
				out = append(out, fmt.Sprintf("%s given up after %s", count(cut, "inspection was", "inspections were"), short(w.f.Config.InspectTimeout)))
			}
			if len(out) == 0 {
				return nil
			}
			return append(out, w.modelEvidence()...)
		},
	},
	{
		ID: PodInspectionFailing, Severity: SeverityWarning,
		Meaning:  "The lists work, but a pod's status cannot be had: the kubelet does not see that pod change.",
		Needs:    "PodSandboxStatus or ContainerStatus of a pod fails again and again with an error.",
		Numbers:  "2 times in a row.",
		Outranks: []string{RelistSlow},
		Next:     "Look at the pods named by `plegd status`; the error is the runtime's.",
		Steps: []string{
			"`plegd status`: the failing pods by name, with the error.",
			"`crictl inspectp POD`, `crictl inspect CONTAINER`: the same error, in full.",
			"A container whose files are gone can be removed with `crictl rm -f`.",
		},
		Restart: HelpsMaybe,
		match: func(w *view) []string {
			n, message := 0, ""
			for _, p := range w.f.Relist.Failing {
				if p.Err != nil && p.Err.Code != "DeadlineExceeded" && p.Failures >= failingInspections {
					n++
					message = fmt.Sprintf("%s: %s", p.Operation, p.Err.Code)
				}
			}
			if n == 0 {
				return nil
			}
			return []string{fmt.Sprintf("%s, %d times or more in a row (%s)", count(n, "pod's inspection fails", "pods' inspections fail"), failingInspections, message)}
		},
	},
	{
		ID: RelistSlow, Severity: SeverityWarning,
		Meaning: "Relists finish, but take long: the kubelet notices changes of its pods late.",
		Needs:   "both lists together are slow in two relists in a row; or a relist, its calls one after another as the kubelet makes them, is.",
		Numbers: "lists above 2s (ends below 1s); a whole relist above 10s.",
		Next:    "See whether the node is short of CPU or disk, and how many containers the runtime holds.",
		Steps: []string{
			"`cat /proc/pressure/{cpu,io,memory}` and `top`: who uses the node?",
			"`cat /sys/fs/cgroup/system.slice/containerd.service/cpu.stat`: is the runtime throttled?",
			"`crictl ps -a -q | wc -l`: thousands of exited containers make every list slow.",
		},
		Restart: HelpsNo,
		match: func(w *view) []string {
			var out []string
			lists := w.f.Relist.Lists
			if n := len(lists); n > 0 {
				slow := n > 1 && lists[n-1] > SlowListThreshold && lists[n-2] > SlowListThreshold
				if slow || w.was(RelistSlow) && lists[n-1] > SlowListThreshold/2 {
					out = append(out, fmt.Sprintf("the lists of the last relist took %s", short(lists[n-1])))
				}
			}
			if last := w.f.Relist.Last; last != nil && last.Err == nil && last.Serial > SlowRelistThreshold {
				out = append(out, fmt.Sprintf("the last relist's calls take %s one after another (%s inspected)", short(last.Serial), count(last.Inspected, "pod", "pods")))
			}
			if behind := w.f.Relist.LastSeen.Sub(w.f.Modelled.LastSeen); !w.f.Modelled.LastSeen.IsZero() && behind > SlowRelistThreshold {
				out = append(out, fmt.Sprintf("the kubelet, one call after another, last began a relist %s before plegd did", short(behind)))
				out = append(out, w.modelEvidence()...)
			}
			return out
		},
	},
}

// modelEvidence says how long the kubelet's relist takes by now.
func (w *view) modelEvidence() []string {
	m := w.f.Modelled
	if m.BusySince.IsZero() || w.age(m.BusySince) < inspectHangAfter {
		return nil
	}
	s := "the kubelet, one call after another, has been in this relist for " + short(w.age(m.BusySince))
	if m.Inspecting > 0 {
		s += fmt.Sprintf(", with %s to go", count(m.Inspecting, "pod", "pods"))
	}
	return []string{s}
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
