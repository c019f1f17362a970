package health

import (
	"fmt"
	"slices"
)

// The reasons, as pleg_reason labels them.
const (
	Starting                      = "Starting"
	RuntimeSocketMissing          = "RuntimeSocketMissing"
	RuntimeSocketUnlinked         = "RuntimeSocketUnlinked"
	RuntimeNotListening           = "RuntimeNotListening"
	RuntimeSocketPermissionDenied = "RuntimeSocketPermissionDenied"
	AcceptQueueFull               = "AcceptQueueFull"
	AcceptStalled                 = "AcceptStalled"
	RuntimeStarting               = "RuntimeStarting"
	RuntimeUnresponsive           = "RuntimeUnresponsive"
	RuntimeListStall              = "RuntimeListStall"
	ListResponseTooLarge          = "ListResponseTooLarge"
	RuntimeNotReady               = "RuntimeNotReady"
	NetworkNotReady               = "NetworkNotReady"
	CRIVersionUnsupported         = "CRIVersionUnsupported"
	PodInspectionStall            = "PodInspectionStall"
	PodInspectionFailing          = "PodInspectionFailing"
	RelistSlow                    = "RelistSlow"
	Unknown                       = "Unknown"
)

// Help says whether restarting the runtime can help.
type Help string

// What restarting the runtime does.
const (
	HelpsYes   Help = "yes"
	HelpsNo    Help = "no"
	HelpsMaybe Help = "maybe"
)

// Reason is one row of the table.
type Reason struct {
	ID       string
	Severity Severity
	// Meaning is one line.
	Meaning string
	// Needs is the evidence that the reason needs; Numbers its thresholds, ""
	// when it has none.
	Needs   string
	Numbers string
	// Outranks names the reasons that are consequences of this one, or less
	// urgent beside it.
	Outranks []string
	// Next is what to do next, in one line; Steps are the commands and looks of
	// the runbook, in their order.
	Next  string
	Steps []string
	// Restart says whether restarting the runtime can help, RestartNote what
	// more there is to say of it.
	Restart     Help
	RestartNote string

	match func(*view) []string
}

// outranks tells whether the row says so of another reason.
func (r *Reason) outranks(id string) bool { return slices.Contains(r.Outranks, id) }

// Runbook is the path of the reason's page below the project's root.
func (r *Reason) Runbook() string { return "docs/reasons/" + r.ID + ".md" }

// Reasons returns the table: every reason, the primary one of several first.
// The rows are the caller's to read only.
func Reasons() []Reason { return slices.Clone(table) }

// reasonOf returns a row; it panics for an id that the table does not hold.
func reasonOf(id string) *Reason {
	for i := range table {
		if table[i].ID == id {
			return &table[i]
		}
	}
	panic("no reason " + id)
}

// calls are the reasons that speak of calls, pods and load: all of them follow
// from a runtime that cannot be reached.
var calls = []string{
	RuntimeStarting, RuntimeUnresponsive, RuntimeListStall, ListResponseTooLarge, RuntimeNotReady, NetworkNotReady,
	PodInspectionStall, PodInspectionFailing, RelistSlow,
}

// table is every reason that plegd can name. When several are active, the
// primary one is the one that no other active one outranks, by this order.
var table = []Reason{
	{
		ID: RuntimeSocketMissing, Severity: SeverityCritical,
		Meaning:  "There is no socket at the runtime's path: the runtime has been stopped, or was never started.",
		Needs:    "connect fails with ENOENT and no earlier connection is answered; or no runtime socket was found at any known place.",
		Outranks: append([]string{AcceptQueueFull, AcceptStalled, CRIVersionUnsupported}, calls...),
		Next:     "Start the runtime, and see in its log why it stopped.",
		Steps: []string{
			"`systemctl status containerd` (or `crio`): is it stopped, failed, or restarting?",
			"`journalctl -u containerd -b --since -15min`: its last words.",
			"If it runs under another path, tell plegd with `--runtime-endpoint`; `plegd status` shows which path it watches and why.",
		},
		Restart: HelpsYes, RestartNote: "It is not running: start it.",
		match: func(w *view) []string {
			if w.f.Endpoint.Path == "" {
				out := []string{"no runtime socket found"}
				for _, s := range w.f.Endpoint.Searched {
					out = append(out, "looked at "+s)
				}
				return out
			}
			if c, detail := w.connect(); c == CauseMissing {
				return w.connectEvidence(detail)
			}
			return nil
		},
	},
	{
		ID: RuntimeNotListening, Severity: SeverityCritical,
		Meaning:  "The socket's path exists, but nobody listens on it: the runtime was killed, or the path is no socket.",
		Needs:    "connect fails with ECONNREFUSED, or what stands at the path is no socket.",
		Outranks: append([]string{AcceptQueueFull, AcceptStalled, CRIVersionUnsupported, RuntimeSocketUnlinked}, calls...),
		Next:     "Start the runtime; look for an OOM kill or a crash first.",
		Steps: []string{
			"`systemctl status containerd`: exit code and signal of the last run.",
			"`journalctl -k -b | grep -i -e oom -e killed`: was it killed for memory?",
			"`journalctl -u containerd -b -n 200`: a panic is printed at the end.",
		},
		Restart: HelpsYes, RestartNote: "It is not running: start it.",
		match: func(w *view) []string {
			if c, detail := w.connect(); c == CauseRefused || c == CauseNotSocket {
				return w.connectEvidence(detail)
			}
			if _, c, detail := w.beside(); c == CauseRefused || c == CauseNotSocket {
				return []string{"a fresh connect fails: " + detail, "the connection held since before still answers: another process runs behind it"}
			}
			return nil
		},
	},
	{
		ID: RuntimeSocketPermissionDenied, Severity: SeverityCritical,
		Meaning:  "plegd may not connect to the runtime's socket.",
		Needs:    "connect fails with EACCES or EPERM.",
		Outranks: append([]string{AcceptQueueFull, AcceptStalled, CRIVersionUnsupported, RuntimeSocketUnlinked}, calls...),
		Next:     "Compare the socket's owner and mode with the user that plegd runs as; the kubelet may be fine.",
		Steps: []string{
			"`stat /run/containerd/containerd.sock` and its directories: root:root 0660 is usual.",
			"plegd has to run as root (it needs no capability for this); in a pod, as uid 0 with the SELinux type spc_t.",
			"`ausearch -m avc -ts recent`: has SELinux or AppArmor refused it?",
		},
		Restart: HelpsMaybe, RestartNote: "Only when its mode was changed by hand: a restart makes the socket anew.",
		match: func(w *view) []string {
			if c, detail := w.connect(); c == CausePermissionDenied {
				return w.connectEvidence(detail)
			}
			if _, c, detail := w.beside(); c == CausePermissionDenied {
				return []string{"a fresh connect fails: " + detail, "the connection held since before still answers"}
			}
			return nil
		},
	},
	{
		ID: RuntimeSocketUnlinked, Severity: SeverityWarning,
		Meaning:  "The runtime runs and answers, but its socket's path is gone: whoever connects anew fails.",
		Needs:    "a fresh connect fails with ENOENT while calls on the connection held since before are answered.",
		Outranks: []string{PodInspectionStall, PodInspectionFailing, RelistSlow},
		Next:     "Restart the runtime in a quiet moment; until then a restart of the kubelet would leave the node NotReady.",
		Steps: []string{
			"Find out what removed the socket: a clean-up of /run, a second runtime started by mistake, a package upgrade.",
			"Do not restart the kubelet before the socket is back: it would not be able to connect.",
			"`systemctl restart containerd` makes the socket again; running containers are kept.",
		},
		Restart: HelpsYes, RestartNote: "It makes the socket again.",
		match: func(w *view) []string {
			if _, c, _ := w.beside(); c == CauseMissing {
				return []string{
					fmt.Sprintf("no socket at its path for %s", short(w.age(w.f.Probe.FailedSince))),
					fmt.Sprintf("the connection held since before was answered %s ago", short(w.age(w.lastAnswer))),
				}
			}
			return nil
		},
	},
	{
		ID: AcceptQueueFull, Severity: SeverityCritical,
		Meaning:  "The queue of connections that the runtime has yet to accept is full: nobody can connect.",
		Needs:    "connect fails with EAGAIN.",
		Outranks: append([]string{AcceptStalled}, calls...),
		Next:     "Find who connects and does not let go, and why the runtime does not accept; then restart the runtime.",
		Steps: []string{
			"`ss -xlp | grep containerd.sock`: Recv-Q above Send-Q is a full queue.",
			"`ss -xp | grep containerd.sock | wc -l`: how many connections, and whose.",
			"`ls /proc/$(pidof containerd)/fd | wc -l` against `grep files /proc/$(pidof containerd)/limits`.",
		},
		Restart: HelpsYes, RestartNote: "It empties the queue; without mending the cause it fills again.",
		match: func(w *view) []string {
			if c, detail := w.connect(); c == CauseQueueFull {
				return w.connectEvidence(detail)
			}
			if _, c, detail := w.beside(); c == CauseQueueFull {
				return []string{"a fresh connect fails: " + detail, fmt.Sprintf("the connection held since before was answered %s ago", short(w.age(w.lastAnswer)))}
			}
			return nil
		},
	},
	{
		ID: AcceptStalled, Severity: SeverityCritical,
		Meaning:  "The runtime answers on old connections and accepts no new one: the next reconnect, the kubelet's included, will hang.",
		Needs:    "a fresh connection is made by the kernel and gets no HTTP/2 SETTINGS, while calls on the held connection are answered.",
		Numbers:  "no SETTINGS within --probe-timeout (1s).",
		Outranks: []string{NetworkNotReady, PodInspectionStall, PodInspectionFailing, RelistSlow, RuntimeNotReady},
		Next:     "Compare the runtime's open files with its limit; the usual cause is that it has run out of them.",
		Steps: []string{
			"`ls /proc/$(pidof containerd)/fd | wc -l` against `grep files /proc/$(pidof containerd)/limits`.",
			"`ss -xlp | grep containerd.sock`: a growing Recv-Q is connections that nobody accepts.",
			"Do not restart the kubelet: its held connection is all that keeps the node Ready.",
			"Raise LimitNOFILE in the runtime's unit, find what leaks (idle connections, exec sessions), then restart the runtime.",
		},
		Restart: HelpsYes, RestartNote: "It frees the descriptors; running containers are kept.",
		match: func(w *view) []string {
			if stage, c, _ := w.beside(); stage == StageSettings && (c == CauseTimeout || c == CauseClosed) {
				return []string{
					fmt.Sprintf("a fresh connection: %s for %s", probeText(w.f.Probe), short(w.age(w.f.Probe.FailedSince))),
					fmt.Sprintf("the connection held since before was answered %s ago", short(w.age(w.lastAnswer))),
				}
			}
			return nil
		},
	},
	{
		ID: CRIVersionUnsupported, Severity: SeverityCritical,
		Meaning:  "What answers on the socket does not serve CRI runtime.v1: an older API, or another program.",
		Needs:    "calls are answered with Unimplemented, or the other end does not speak gRPC.",
		Outranks: calls,
		Next:     "Check that the path is the runtime's CRI socket, and that the runtime is new enough (containerd 1.6 or newer).",
		Steps: []string{
			"`containerd --version`, `crio --version`: runtime.v1 is served from containerd 1.6 on, and by a CRI-O of the kubelet's own version; the kubelet needs it from 1.26 on.",
			"In containerd's config.toml, `disabled_plugins` must not name `cri` (packages of docker disable it).",
			"`curl --unix-socket PATH http://localhost/`: an answer in HTTP/1.1 means another program, dockerd for example.",
		},
		Restart: HelpsNo, RestartNote: "Only after its configuration or version has changed.",
		match: func(w *view) []string {
			e := w.failed()
			if e == nil {
				return nil
			}
			if e.Code == "Unimplemented" {
				return []string{fmt.Sprintf("%s failed: %s: %s", e.Operation, e.Code, e.Message)}
			}
			if p := w.f.Probe; p.Cause == CauseUnimplemented || p.Cause == CauseProtocol {
				return []string{"a fresh connection: " + probeText(p)}
			}
			return nil
		},
	},
	{
		ID: RuntimeStarting, Severity: SeverityWarning,
		Meaning:  "The runtime is up and still recovering its state: it answers every call with an error.",
		Needs:    "calls fail with \"server is not initialized yet\".",
		Outranks: []string{RuntimeNotReady, NetworkNotReady, PodInspectionStall, PodInspectionFailing, RelistSlow},
		Next:     "Wait; if it takes minutes, look in the runtime's log for the container that it cannot recover.",
		Steps: []string{
			"`journalctl -u containerd -b -n 100`: the last line names what it is recovering.",
			"Each stuck shim costs containerd seconds at start: `ps -eo pid,stat,etime,args | grep shim`.",
		},
		Restart: HelpsNo, RestartNote: "It would start over.",
		match: func(w *view) []string {
			if e := w.failed(); e != nil && e.NotInitialized {
				return []string{fmt.Sprintf("%s failed: %s", e.Operation, e.Message)}
			}
			return nil
		},
	},
	{
		ID: RuntimeUnresponsive, Severity: SeverityCritical,
		Meaning:  "The runtime accepts connections at most and answers nothing: every call hangs.",
		Needs:    "a list and a Version call beside it are unanswered, and nothing has been answered since.",
		Numbers:  "the list for 1.5s, and for three times the slowest of the last three (20s at most); Version for 0.9s.",
		Outranks: []string{RuntimeListStall, AcceptStalled, RuntimeNotReady, NetworkNotReady, PodInspectionStall, PodInspectionFailing, RelistSlow},
		Next:     "See what state the runtime's threads are in before you restart it.",
		Steps: []string{
			"`ps -L -o tid,stat,wchan:32,comm -p $(pidof containerd)`: T is stopped, D waits for the kernel (disk), S sleeps on a lock.",
			"`cat /proc/pressure/{cpu,io,memory}`: is the whole node starved?",
			"`kill -USR1 $(pidof containerd)`: containerd writes its goroutine stacks to its log; keep them for the bug report.",
			"`systemctl restart containerd`: running containers are kept.",
		},
		Restart: HelpsMaybe, RestartNote: "Not when its threads are in D: a process in D cannot be killed.",
		match: func(w *view) []string {
			if c, _ := w.connect(); c != CauseNone || w.f.Endpoint.Path == "" || !w.silent() {
				return nil
			}
			return w.callEvidence()
		},
	},
	{
		ID: RuntimeListStall, Severity: SeverityCritical,
		Meaning:  "One list hangs while the runtime answers other calls: a lock inside the runtime, usually one container's.",
		Needs:    "ListPodSandbox or ListContainers is unanswered, and another call has been answered since it began.",
		Numbers:  "1.5s, and three times the slowest of the last three relists' lists (20s at most).",
		Outranks: []string{RuntimeNotReady, AcceptStalled, PodInspectionStall, PodInspectionFailing, RelistSlow},
		Next:     "Take the runtime's goroutine stacks, then restart it.",
		Steps: []string{
			"`kill -USR1 $(pidof containerd)`: containerd writes its goroutine stacks to its log; the stuck one holds a container's lock.",
			"`crictl pods`, `crictl ps`: which of the two hangs tells which lock.",
			"`systemctl restart containerd` frees the lock; running containers are kept.",
		},
		Restart: HelpsYes, RestartNote: "It frees the lock; running containers are kept.",
		match: func(w *view) []string {
			since, ok := w.hangSince()
			if !ok || !w.lastAnswer.After(since) || w.silent() {
				return nil
			}
			return w.callEvidence()
		},
	},
	{
		ID: ListResponseTooLarge, Severity: SeverityCritical,
		Meaning:  "A list has outgrown the largest message: the kubelet can no longer see its containers.",
		Needs:    "a list fails with ResourceExhausted and names the size.",
		Numbers:  "16777216 bytes, the kubelet's limit and containerd's.",
		Outranks: []string{PodInspectionStall, PodInspectionFailing, RelistSlow},
		Next:     "Remove exited containers; then find what leaves so many of them.",
		Steps: []string{
			"`crictl ps -a -q | wc -l`, `crictl pods -q | wc -l`: around 15,000 containers fill 16 MiB.",
			"`crictl rm $(crictl ps -a -q --state Exited)` if crictl can still list; else remove by `ctr -n k8s.io containers rm`.",
			"Containers with labels or annotations of many kilobytes reach the limit with far fewer.",
		},
		Restart: HelpsNo, RestartNote: "The containers are still there afterwards.",
		match: func(w *view) []string {
			e := w.failed()
			if e == nil || e.Code != "ResourceExhausted" || e.Bytes == 0 {
				return nil
			}
			whose := "the kubelet's limit"
			if e.ByServer {
				whose = "the runtime's own limit"
			}
			return []string{fmt.Sprintf("%s is %d bytes, %s is %d", e.Operation, e.Bytes, whose, e.Limit)}
		},
	},
	{
		ID: RuntimeNotReady, Severity: SeverityCritical,
		Meaning:  "Status does not say that the runtime is ready: it says RuntimeReady=false, or gives no answer while other calls do.",
		Needs:    "the last Status answer holds no RuntimeReady=true; or Status fails or is unanswered while the lists are answered.",
		Numbers:  "Status unanswered for 2s.",
		Outranks: []string{NetworkNotReady, PodInspectionStall, PodInspectionFailing, RelistSlow},
		Next:     "Read the runtime's own reason below, then its log.",
		Steps: []string{
			"`crictl info`: the conditions with their messages.",
			"`journalctl -u containerd -b -n 200`.",
			"The kubelet turns the node NotReady 30 s after the last good Status, at once when it says RuntimeReady=false.",
		},
		Restart: HelpsMaybe,
		match: func(w *view) []string {
			s := &w.f.Status
			if s.Answered && !s.RuntimeReady.good() {
				return []string{"Status says " + s.RuntimeReady.print("RuntimeReady")}
			}
			if !w.statusTrouble() || !w.answeredBesideStatus() {
				return nil
			}
			var out []string
			if !s.InFlightSince.IsZero() {
				out = append(out, fmt.Sprintf("status unanswered for %s", short(w.age(s.InFlightSince))))
			}
			if e := s.LastErr; e != nil {
				out = append(out, fmt.Sprintf("status failed: %s: %s", e.Code, e.Message))
			}
			return append(out, fmt.Sprintf("other calls are answered, the last %s ago", short(w.age(w.lastAnswer))))
		},
	},
	{
		ID: NetworkNotReady, Severity: SeverityCritical,
		Meaning:  "The runtime says that the pod network is not ready: usually the CNI configuration is missing.",
		Needs:    "the last Status answer holds no NetworkReady=true.",
		Outranks: []string{PodInspectionStall, PodInspectionFailing, RelistSlow},
		Next:     "See whether the CNI plugin's pod runs on this node and has written /etc/cni/net.d.",
		Steps: []string{
			"`ls -l /etc/cni/net.d /opt/cni/bin`: a configuration and its binaries must be there.",
			"`crictl info | grep -A3 lastCNILoadStatus`: the real error.",
			"`crictl ps -a | grep -e cni -e calico -e cilium -e flannel`: is the network's agent running here?",
		},
		Restart: HelpsNo, RestartNote: "containerd reads /etc/cni/net.d when it changes.",
		match: func(w *view) []string {
			if s := &w.f.Status; s.Answered && !s.NetworkReady.good() {
				return []string{"Status says " + s.NetworkReady.print("NetworkReady")}
			}
			return nil
		},
	},
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
	{
		ID: Unknown, Severity: SeverityCritical,
		Meaning: "Something is wrong, and the evidence is too thin to say what.",
		Needs:   "relists fail or hang, or the kubelet would report NotReady, and no other reason fits.",
		Numbers: "for 3s.",
		Next:    "Go by the evidence: it is all that plegd has seen.",
		Steps: []string{
			"`plegd status`: what failed, with the runtime's own words.",
			"`journalctl -u containerd -u kubelet -b --since -15min`.",
			"Please report what it turned out to be: it is a row missing from the table.",
		},
		Restart: HelpsMaybe,
		match:   func(*view) []string { return nil },
	},
	{
		ID: Starting, Severity: SeverityInfo,
		Meaning: "plegd has just started and has yet to see a relist and a Status succeed.",
		Needs:   "nothing else fits, and none of the kubelet's rules has had its full time since plegd started.",
		Numbers: "30s for Status, --relist-threshold (3m) for the relist.",
		Next:    "Wait a moment.",
		Steps:   []string{"Nothing: the next verdict says more."},
		Restart: HelpsNo,
		match:   func(*view) []string { return nil },
	},
}

// connectEvidence says why no connection can be made and what was last answered.
func (w *view) connectEvidence(detail string) []string {
	out := []string{"connect fails: " + detail}
	if w.lastAnswer.IsZero() {
		return append(out, "nothing has been answered since plegd started")
	}
	return append(out, fmt.Sprintf("last answer %s ago", short(w.age(w.lastAnswer))))
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
