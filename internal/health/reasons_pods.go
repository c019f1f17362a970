package health

import (
	"fmt"
	"time"
)

// podReasons speak of single pods and of load.
var podReasons = []Reason{
	{
		ID: ShimStuck, Layer: LayerPods, Severity: SeverityWarning, criticalWhile: (*view).holdsUpCalls,
		Meaning: "A pod's shim or conmon is stopped, frozen or stuck in the kernel: that pod can be neither inspected in full nor stopped.",
		Needs:   "a shim or conmon is in state T, in a frozen cgroup, or has a thread that is stuck in the kernel; or a call hangs and the chain of waiting leads to a shim that does not answer.",
		Thresholds: []Threshold{
			{"stopped or frozen for %s", stoppedShim},
			{"a thread in D, or asleep without waiting for work, for %s", blockedShim},
		},
		Next: "See what stopped it; continue or end that shim to recover the pod.",
		Steps: []string{
			"`ps -o pid,stat,wchan:32,etime,args -p {shim}`: T is stopped (by a debugger, by job control), D waits for the disk.",
			"`kill -CONT {shim}` where it was stopped; killing it ends the pod, which the kubelet then recreates.",
			"It delays the next start of the runtime: fix it before you restart that.",
		},
		Restart: HelpsNo, RestartNote: "A stuck shim outlives it. containerd 1.6 and 1.7 then take 15 to 19 s and call the running containers of that pod EXITED; 2.4 does not end on SIGTERM, and after SIGKILL does the same (tried).",
		match: func(w *view) []string {
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
					out = append(out, fmt.Sprintf("pid %d (%s) %s for %s", s.PID, s.Comm, stateText(s.State), short(age)))
				}
			}
			if len(out) > 0 {
				out = append(out, count(c.Shims, "shim", "shims")+" in all")
			}
			return out
		},
	},
	{
		ID: RuntimeHelperStuck, Layer: LayerPods, Severity: SeverityWarning, criticalWhile: func(w *view) bool { return w.chainCause() == RuntimeHelperStuck },
		Meaning: "A helper of the runtime's (a CNI plugin, runc, a hook) does not end: no pod that waits for it can start, while relists look perfect.",
		Needs:   "a child of the runtime or of a shim, in the runtime's own namespaces and whatever its name, has run for long; or a call hangs and the chain of waiting leads to one, however young it is.",
		Thresholds: []Threshold{
			{"runs for %s", oldHelper},
		},
		Next: "See what the helper waits for; for a CNI plugin that is mostly its own daemon or the API server.",
		Steps: []string{
			"`ps -o pid,stat,wchan:32,etime,args -p {helper}`.",
			"The runtime gives up after its own time limit and starts it again; its log has the plugin's error.",
		},
		Restart: HelpsNo, RestartNote: "It would be started again and hang again.",
		match: func(w *view) []string {
			out := w.chainEvidence(RuntimeHelperStuck)
			c := w.f.Evidence.Children
			if c == nil || out != nil || w.lastAnswer.IsZero() { // what never answered may be no runtime at all
				return out
			}
			for _, h := range c.Old {
				if age := w.age(h.Since); age >= oldHelper {
					out = append(out, fmt.Sprintf("pid %d (%s) has run for %s", h.PID, h.Comm, short(age)))
				}
			}
			return out
		},
	},
	{
		ID: PodInspectionStall, Layer: LayerPods, Severity: SeverityCritical,
		Meaning: "The lists work, but asking for one pod's status hangs: the kubelet waits up to two minutes for each such pod, two of them turn the node NotReady.",
		Needs:   "PodSandboxStatus or ContainerStatus of a pod is unanswered, or was until its deadline.",
		Thresholds: []Threshold{
			{"unanswered for %s", inspectHangAfter},
		},
		Next: "Look at the pods named by `plegd status`: their shim or conmon is stuck.",
		Steps: []string{
			"`plegd status`: the stuck pods by name, slowest first.",
			"`ps -eo pid,stat,wchan:32,etime,args | grep -e '[s]him' -e '[c]onmon'`: T is stopped, D waits for the disk.",
			"`{crictl} inspect CONTAINER` runs into its time limit for the one that is stuck.",
			"Killing that pod's shim ends it; the pod is lost and the kubelet recreates it.",
		},
		Restart: HelpsMaybe, RestartNote: "A stuck shim outlives the runtime's restart, and can hold up its start.",
		match: func(w *view) []string {
			var out []string
			hang, givenUp := w.hangingInspections()
			if len(hang) > 0 {
				out = append(out, fmt.Sprintf("an inspection unanswered for %s (%s)", short(w.age(orElse(hang[0].CallStart, hang[0].Start))), hang[0].Operation))
			}
			if givenUp > 0 {
				out = append(out, count(givenUp, "inspection", "inspections")+" got no answer before the deadline")
			}
			if len(out) == 0 {
				return nil
			}
			return append(out, w.modelEvidence()...)
		},
	},
	{
		ID: PodInspectionFailing, Layer: LayerPods, Severity: SeverityWarning,
		Meaning: "The lists work, but a pod's status cannot be had: the kubelet does not see that pod change.",
		Needs:   "PodSandboxStatus or ContainerStatus of a pod fails again and again with an error.",
		Thresholds: []Threshold{
			{"fails %s times in a row", failingInspections},
		},
		Next: "Look at the pods named by `plegd status`; the error is the runtime's.",
		Steps: []string{
			"`plegd status`: the failing pods by name, with the error.",
			"`{crictl} inspectp POD`, `{crictl} inspect CONTAINER`: the same error, in full.",
			"A container whose files are gone can be removed with `{crictl} rm -f`.",
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
		ID: RelistSlow, Layer: LayerHints, Severity: SeverityWarning, criticalWhile: (*view).relistRuleFails,
		Meaning: "Relists finish, but take long: the kubelet notices changes of its pods late.",
		Needs:   "both lists together are slow in two relists in a row; or a relist whose inspections are, one after another as the kubelet makes them.",
		Thresholds: []Threshold{
			{"both lists above %s (ends below half of it)", SlowListThreshold},
			{"the inspections, one after another, above %s", SlowRelistThreshold},
		},
		Next: "See whether the node is short of CPU or disk, and how many containers the runtime holds.",
		Steps: []string{
			"`cat /proc/pressure/{cpu,io,memory}` and `top`: who uses the node?",
			"`cat /sys/fs/cgroup{cgroup}/cpu.stat` (v1: `cat /sys/fs/cgroup/cpu{cgroup}/cpu.stat`): is the runtime throttled?",
			"`{crictl} ps -a -q | wc -l`: thousands of exited containers make every list slow.",
		},
		Restart: HelpsNo,
		match: func(w *view) []string {
			var out []string
			lists := w.f.Relist.Lists
			if n := len(lists); n > 0 {
				if n > 1 && w.near(RelistSlow, min(lists[n-1], lists[n-2]).Seconds(), SlowListThreshold.Seconds(), 1, slowStill) {
					out = append(out, fmt.Sprintf("the lists of the last relist took %s", short(lists[n-1])))
				}
			}
			if last := w.f.Relist.Last; last != nil && last.Err == nil && last.Serial-last.ListPodSandbox-last.ListContainers > SlowRelistThreshold {
				out = append(out, fmt.Sprintf("the last relist's calls take %s one after another (%s inspected)", short(last.Serial), count(last.Inspected, "pod", "pods")))
			}
			if w.inspecting() > SlowRelistThreshold {
				out = append(out, w.modelEvidence()...)
			}
			return out
		},
	},
	{
		ID: ChangeBurst, Layer: LayerPods, Severity: SeverityWarning, criticalWhile: (*view).relistRuleFails,
		Meaning: "Many pods changed at once: the kubelet inspects them one after the other, and sees nothing new meanwhile.",
		Needs:   "many inspections in one relist, that take long one after another.",
		Thresholds: []Threshold{
			{"%s pods changed at once", burstPods},
			{"their inspections take %s", burstTakes},
		},
		Next: "Wait for it to pass; if it comes again and again, find what restarts so many pods together.",
		Steps: []string{
			"`plegd status`: how many pods were inspected, and how long one takes.",
			"Jobs that end together, a rollout, or a node-wide crash loop look like this.",
		},
		Restart: HelpsNo,
		match: func(w *view) []string {
			in, last := w.f.Relist.InFlight, w.f.Relist.Last
			switch {
			case in != nil && in.Phase == PhaseInspect && in.Pods >= burstPods && w.age(in.PhaseStart) >= burstTakes:
				return []string{fmt.Sprintf("%d of %d pods inspected in %s", in.Inspected, in.Pods, short(w.age(in.PhaseStart)))}
			case last != nil && last.Inspected >= burstPods && last.Serial >= burstTakes:
				return append([]string{fmt.Sprintf("%d pods inspected in one relist, %s one after another", last.Inspected, short(last.Serial))}, w.modelEvidence()...)
			case w.inspecting() >= burstTakes && float64(w.f.Modelled.Inspecting) >= w.band(ChangeBurst, burstPods, 1):
				return w.modelEvidence()
			}
			return nil
		},
	},
	{
		ID: FDsRunningOut, Layer: LayerHints, Severity: SeverityWarning,
		Meaning: "The runtime's file descriptors are nearly used up: when they are, it accepts no connection and starts no pod.",
		Needs:   "open descriptors close to the soft limit.",
		Thresholds: []Threshold{
			{"%s of RLIMIT_NOFILE", Share(limitNear)},
			{"ends below %s", Share(limitCalm)},
		},
		Next: "Raise LimitNOFILE in the runtime's unit in a quiet moment, and find what holds so many.",
		Steps: []string{
			"`ls -l /proc/{pid}/fd | awk '{print $NF}' | sed 's/:.*//' | sort | uniq -c`.",
			"About 11 descriptors a pod are usual; far more are a leak or clients that do not let go.",
			"`prlimit --nofile=65536:65536 --pid {pid}` helps at once, until the next restart.",
		},
		Restart: HelpsYes, RestartNote: "It frees what has leaked, and containers are kept. containerd does not end on SIGTERM while idle connections are open: systemd kills it after TimeoutStopSec.",
		match: func(w *view) []string {
			p := w.f.Evidence.Process
			if p == nil || !p.Alive || p.OpenFDs < 0 || p.MaxFDs <= 0 || w.on(sigAcceptNeedsDescriptor) {
				return nil
			}
			if !w.near(FDsRunningOut, float64(p.OpenFDs), float64(p.MaxFDs), limitNear, limitCalm) {
				return nil
			}
			return []string{fmt.Sprintf("fds %d of %d", p.OpenFDs, p.MaxFDs)}
		},
	},
	{
		ID: ResponseNearLimit, Layer: LayerHints, Severity: SeverityWarning, gradual: true,
		Meaning: "A list's answer nears 16 MiB: beyond it the kubelet sees no container any more.",
		Needs:   "the size of the last list answer: close to the limit.",
		Thresholds: []Threshold{
			{"%s of what the kubelet accepts", Share(limitNear)},
			{"which is %s bytes", messageLimit},
			{"ends below %s", Share(limitCalm)},
		},
		Next: "Remove exited containers, and find what leaves so many of them or writes such large labels and annotations.",
		Steps: []string{
			"`{crictl} ps -a -q --state Exited | wc -l`, `{crictl} pods -q --state NotReady | wc -l`.",
			"The kubelet keeps exited containers by maximum-dead-containers and MinimumGCAge.",
		},
		Restart: HelpsNo,
		match: func(w *view) []string {
			for _, op := range []Phase{PhaseListContainers, PhaseListPodSandbox} {
				c := w.f.Calls[string(op)]
				if c.Bytes > messageLimit || !w.near(ResponseNearLimit, float64(c.Bytes), messageLimit, limitNear, limitCalm) {
					continue
				}
				out := []string{fmt.Sprintf("%s is %d of %d bytes", op, c.Bytes, messageLimit)}
				if n := w.f.Pods.total(); op == PhaseListContainers && n > 0 {
					out = append(out, fmt.Sprintf("%d containers of %d bytes; %d more fit", n, c.Bytes/n, (messageLimit-c.Bytes)/max(c.Bytes/n, 1)))
				}
				return out
			}
			return nil
		},
	},
	{
		ID: TooManyContainers, Layer: LayerHints, Severity: SeverityWarning, gradual: true,
		Meaning: "The runtime holds far more containers than a node runs: lists grow slow, and near their limit.",
		Needs:   "the number of containers, exited ones too.",
		Thresholds: []Threshold{
			{"%s containers", tooManyContainers},
			{"ends below %s of that", Share(tooManyStill)},
			{"plegd reads at most 40000 entries of one answer, and 12 MB of ids and names", nil},
		},
		Next: "Remove exited containers; see why the kubelet's garbage collection does not.",
		Steps: []string{
			"`{crictl} ps -a -q --state Exited | wc -l`.",
			"`journalctl -u kubelet | grep -i garbage`.",
		},
		Restart: HelpsNo,
		match: func(w *view) []string {
			for _, op := range []Phase{PhaseListPodSandbox, PhaseListContainers} {
				if c := w.f.Calls[string(op)]; c.LastErr != nil && c.LastErr.TooMany && c.LastFailed.After(c.LastOK) {
					return []string{fmt.Sprintf("%s: %s; %d bytes", op, c.LastErr.Message, c.Bytes), "what runs here is as plegd last knew it"}
				}
			}
			if n := w.f.Pods.total(); w.near(TooManyContainers, float64(n), tooManyContainers, 1, tooManyStill) {
				return []string{fmt.Sprintf("%d containers", n)}
			}
			return nil
		},
	},
}

// holdsUpCalls reports whether a stuck shim makes a call hang: the chain of waiting
// proves it, or an inspection hangs and a shim of that pod is stuck.
func (w *view) holdsUpCalls() bool {
	hang, givenUp := w.hangingInspections()
	return w.chainCause() == ShimStuck || len(hang)+givenUp > 0 && w.shimHoldsUp()
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
	s := "the kubelet, one call after another, has been inspecting for " + short(w.inspecting())
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

const (
	stoppedShim = 300 * time.Millisecond
	blockedShim = 10 * time.Second
	oldHelper   = 30 * time.Second

	burstPods  = 50
	burstTakes = 5 * time.Second

	slowStill = 0.5 // RelistSlow ends below this share of SlowListThreshold

	tooManyContainers = 5000
	tooManyStill      = 0.9 // it ends below this share
	// limitNear is the share of a limit from which it counts as near, limitCalm
	// the one below which that ends.
	limitNear = 0.8
	limitCalm = 0.75
	// messageLimit is the largest answer that the kubelet accepts
	// (k8s.io/cri-client, maxMsgSize).
	messageLimit = 16 << 20
)

// inspecting is how long the modelled kubelet has been inspecting pods in its
// relist under way.
func (w *view) inspecting() time.Duration {
	if w.f.Modelled.InspectingSince.IsZero() {
		return 0
	}
	return w.age(w.f.Modelled.InspectingSince)
}

// near reports whether a value is at or above a share of its limit; a reason that
// stands ends only below a smaller share.
func (w *view) near(id string, value, limit, begin, end float64) bool {
	return value >= limit*w.band(id, begin, end)
}

// band is where a reason begins, or, while it stands, where it ends. It is for numbers
// that stay near a limit for hours: no time of holding is long enough for these.
func (w *view) band(id string, begin, end float64) float64 {
	if w.wasActive(id) {
		return end
	}
	return begin
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
