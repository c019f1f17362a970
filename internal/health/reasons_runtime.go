package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// runtimeReasons speak of the runtime as a whole: its process and its calls.
var runtimeReasons = []Reason{
	{
		ID: CRIVersionUnsupported, Severity: SeverityCritical,
		Meaning:  "What answers on the socket does not serve CRI runtime.v1: an older API, or another program.",
		Needs:    "calls are answered with Unimplemented or with what is no message of runtime.v1, or the other end does not speak gRPC.",
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
			said := fmt.Sprintf("%s failed: %s: %s", e.Operation, e.Code, e.Message)
			if e.Code == "Unimplemented" {
				return []string{said}
			}
			if strings.Contains(e.Message, "HTTP/1.1 header") { // grpc-go's word for a web server
				return []string{"a web server answers: the other end does not speak gRPC", said}
			}
			// One list that cannot be read may be one entry's fault.
			if s := w.f.Status.LastErr; e.Undecodable && s != nil && s.Undecodable {
				return []string{"what is answered is no message of runtime.v1, to Status neither", said}
			}
			// Garbage does not always look the same: what was once seen to speak
			// another protocol may just hang up the next time.
			p := w.f.Probe
			if p.Cause == CauseUnimplemented || p.Cause == CauseProtocol || p.Cause == CauseClosed && w.was(CRIVersionUnsupported) {
				return []string{"a fresh connection: " + probeText(p)}
			}
			return nil
		},
	},
	{
		ID: RuntimeStarting, Severity: SeverityWarning,
		Meaning:  "The runtime has just been started and is still recovering its state: it does not listen yet, does not accept, or answers every call with an error.",
		Needs:    "calls fail with \"server is not initialized yet\"; or its process is young and does not listen yet, or listens and has accepted nothing.",
		Numbers:  "the process is younger than 5m.",
		Outranks: slices.Concat([]string{RuntimeSocketMissing, RuntimeNotListening, AcceptStalled}, calls),
		Next:     "Wait; if it takes minutes, look in the runtime's log for the container that it cannot recover.",
		Steps: []string{
			"`journalctl -u containerd -b -n 100`: the last line names what it is recovering.",
			"Each stuck shim costs containerd seconds at start: `ps -eo pid,stat,etime,args | grep shim`.",
		},
		Restart: HelpsNo, RestartNote: "It would start over.",
		match: func(w *view) []string {
			if e := w.failed(); e != nil && e.NotInitialized {
				return append([]string{fmt.Sprintf("%s failed: %s", e.Operation, e.Message)}, w.youngEvidence()...)
			}
			p := w.f.Evidence.Process
			if p == nil || !p.Alive || w.age(p.Start) > youngFor || !w.lastAnswer.Before(p.Start) {
				return nil
			}
			q := w.f.Evidence.Queue
			cause, _ := w.connect()
			_, _, hanging := w.hang()
			switch {
			case cause == CauseMissing || cause == CauseRefused:
				return append([]string{"it does not listen yet"}, w.youngEvidence()...)
			case hanging && q != nil && q.Listening && q.Length > 0:
				return append([]string{fmt.Sprintf("it listens and has accepted nothing: accept queue %d of %d", q.Length, q.Limit)}, w.youngEvidence()...)
			}
			return nil
		},
	},
	{
		ID: RuntimeUnresponsive, Severity: SeverityCritical,
		Meaning:  "The runtime accepts connections at most and answers nothing: every call hangs.",
		Needs:    "a list and a Version call beside it are unanswered, and nothing has been answered since.",
		Numbers:  "the list for 1.5s and 0.1s for each MiB of the last one, with no more than 64 KiB of it in half a second, for three times the median of the last three, and for 1.5s more than the last one (20s at most); Version for 0.9s.",
		Outranks: slices.Concat([]string{RuntimeListStall, AcceptStalled, RuntimeNotReady, NetworkNotReady}, pods),
		Next:     "See what state the runtime's threads are in before you restart it.",
		Steps: []string{
			"`ps -L -o tid,stat,wchan:32,comm -p $(pidof containerd)`: T is stopped, D waits for the kernel (disk), S sleeps on a lock.",
			"`cat /proc/pressure/{cpu,io,memory}`: is the whole node starved?",
			"`kill -USR1 $(pidof containerd)`: containerd goes on, and writes its goroutine stacks to its log (`journalctl -u containerd`); keep them for the bug report.",
			"`systemctl restart containerd`: running containers are kept.",
		},
		Restart: HelpsMaybe, RestartNote: "Not when its threads are in D: a process in D cannot be killed.",
		match: func(w *view) []string {
			if c, _ := w.connect(); c != CauseNone || w.f.Endpoint.Path == "" || !w.silent() {
				return nil
			}
			return append(w.callEvidence(), w.acceptEvidence()...)
		},
	},
	{
		ID: RuntimeListStall, Severity: SeverityCritical,
		Meaning:  "One list hangs while the runtime answers other calls: a lock inside the runtime, usually one container's.",
		Needs:    "ListPodSandbox or ListContainers is unanswered, and another call has been answered since it began.",
		Numbers:  "1.5s and 0.1s for each MiB of the last one, with no more than 64 KiB of it in half a second, three times the median of the last three relists' lists, and 1.5s more than the last one's (20s at most).",
		Outranks: slices.Concat([]string{AcceptStalled, RuntimeNotReady}, pods),
		Next:     "Take the runtime's goroutine stacks, then restart it.",
		Steps: []string{
			"`kill -USR1 $(pidof containerd)`: containerd goes on, and writes its goroutine stacks to its log (`journalctl -u containerd`); the stuck one holds a container's lock.",
			"`crictl pods`, `crictl ps`: which of the two hangs tells which lock.",
			"`systemctl restart containerd` frees the lock; running containers are kept.",
		},
		Restart: HelpsYes, RestartNote: "It frees the lock; running containers are kept.",
		match: func(w *view) []string {
			since, ok := w.hangSince()
			if !ok || !w.lastAnswer.After(since) || w.silent() || w.streaming() != nil {
				return nil
			}
			return w.callEvidence()
		},
	},
	{
		ID: ListResponseTooLarge, Severity: SeverityCritical,
		Meaning:  "A list has outgrown the largest message: the kubelet can no longer see its containers.",
		Needs:    "a list fails with ResourceExhausted and names the size; or it is that long when plegd streams it (StreamContainers, StreamPodSandboxes), which stands for what the kubelet would be refused.",
		Numbers:  "16777216 bytes, the kubelet's limit and containerd's.",
		Outranks: pods,
		Next:     "Remove exited containers; then find what leaves so many of them.",
		Steps: []string{
			"`crictl ps -a -q | wc -l`, `crictl pods -q | wc -l`: around 15,000 containers fill 16 MiB.",
			"`crictl rm $(crictl ps -a -q --state Exited)` if crictl can still list; else remove by `ctr -n k8s.io containers rm`.",
			"Containers with labels or annotations of many kilobytes reach the limit with far fewer.",
		},
		Restart: HelpsNo, RestartNote: "The containers are still there afterwards.",
		match: func(w *view) []string {
			e := w.refused()
			if e == nil {
				return nil
			}
			whose := "the kubelet's limit"
			if e.ByServer {
				whose = "the runtime's own limit"
			}
			out := []string{fmt.Sprintf("%s is %d bytes, %s is %d", e.Operation, e.Bytes, whose, e.Limit)}
			if w.failed() == nil && w.f.Relist.Last != nil && w.f.Relist.Last.Refused != nil {
				out = append(out, fmt.Sprintf("plegd lists %d containers by streaming; most kubelets cannot", w.f.Containers))
			}
			return out
		},
	},
	{
		ID: RuntimeNotReady, Severity: SeverityCritical,
		Meaning:  "Status does not say that the runtime is ready: it says RuntimeReady=false, or gives no answer while other calls do.",
		Needs:    "the last Status answer holds no RuntimeReady=true; or Status fails or is unanswered while the lists are answered.",
		Numbers:  "Status unanswered for 2s.",
		Outranks: slices.Concat([]string{NetworkNotReady}, pods),
		Next:     "Read the runtime's own reason below, then its log.",
		Steps: []string{
			"`crictl info`: the conditions with their messages.",
			"`journalctl -u containerd -b -n 200`.",
			"The kubelet turns the node NotReady 30 s after the last good Status, at once when it says RuntimeReady=false.",
		},
		Restart: HelpsMaybe,
		match: func(w *view) []string {
			s := &w.f.Status
			if s.Answered && !s.RuntimeReady.Good() {
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
		Outranks: pods,
		Next:     "See whether the CNI plugin's pod runs on this node and has written /etc/cni/net.d.",
		Steps: []string{
			"`ls -l /etc/cni/net.d /opt/cni/bin`: a configuration and its binaries must be there.",
			"`crictl info | grep -A3 lastCNILoadStatus`: the real error.",
			"`crictl ps -a | grep -e cni -e calico -e cilium -e flannel`: is the network's agent running here?",
			"CRI-O says NetworkReady=true for good once it has had a configuration: that it is gone shows there only in pods that do not start, and here after CRI-O's next start.",
		},
		Restart: HelpsNo, RestartNote: "containerd reads /etc/cni/net.d when it changes.",
		match: func(w *view) []string {
			if s := &w.f.Status; s.Answered && !s.NetworkReady.Good() {
				return []string{"Status says " + s.NetworkReady.print("NetworkReady")}
			}
			return nil
		},
	},
}

// youngFor is how long after its start a runtime that does not serve yet counts
// as starting: recovering hundreds of pods takes minutes at worst.
const youngFor = 5 * time.Minute

func (w *view) youngEvidence() []string {
	p := w.f.Evidence.Process
	if p == nil || !p.Alive {
		return nil
	}
	return []string{fmt.Sprintf("pid %d was started %s ago", p.PID, short(w.age(p.Start)))}
}
