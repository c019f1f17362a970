package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// listHangs are the thresholds of a list that counts as hanging.
var listHangs = []Threshold{
	{"a list unanswered for %s", HangAfter},
	{"and %s more for each MiB of its last answer", hangPerMiB},
	{"for three times the median of the last %s relists' lists", recentLists},
	{"and %s longer than the last one", HangAfter},
	{"but %s at most", hangSurely},
	{"while less than 64 KiB of it arrive in half a second", nil},
	{"%s where its CPU quota takes time meanwhile", quotaMeasured},
}

// runtimeReasons speak of the runtime as a whole: its process and its calls.
var runtimeReasons = []Reason{
	{
		ID: CRIVersionUnsupported, Layer: LayerCalls, Severity: SeverityCritical,
		Meaning: "What answers on the socket does not serve CRI runtime.v1: an older API, or another program.",
		Needs:   "calls are answered with Unimplemented or with what is no message of runtime.v1, or the other end does not speak gRPC.",
		Next:    "Check that the path is the runtime's CRI socket, and that the runtime is new enough (containerd 1.6 or newer).",
		Steps: []string{
			"`containerd --version`, `crio --version`: runtime.v1 is served from containerd 1.6 on, and by a CRI-O of the kubelet's own version; the kubelet needs it from 1.26 on.",
			"In containerd's config.toml, `disabled_plugins` must not name `cri` (packages of docker disable it).",
			"`curl --max-time 5 --unix-socket {socket} http://localhost/`: an answer in HTTP/1.1 means another program, dockerd for example.",
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
			hangsUp := p.Cause == CauseClosed && w.wasActive(CRIVersionUnsupported)
			if p.Cause == CauseUnimplemented || p.Cause == CauseProtocol || hangsUp {
				return []string{"a fresh connection: " + ProbeText(&p)}
			}
			return nil
		},
	},
	{
		ID: RuntimeStarting, Layer: LayerProcess, Severity: SeverityCritical,
		Meaning: "The runtime has just been started and is still recovering its state: it does not listen yet, does not accept, or answers every call with an error.",
		Needs:   "calls fail with \"server is not initialized yet\"; or its process is young and no socket listens at the path yet, or listens and has accepted nothing, or has just been started and has answered nothing yet.",
		Thresholds: []Threshold{
			{"the process is younger than %s", youngFor},
			{"or than %s where it accepts and does not answer", startsFor},
		},
		Next: "Wait; if it takes minutes, look in the runtime's log for the container that it cannot recover.",
		Steps: []string{
			"`journalctl -u {unit} -b -n 100`: the last line names what it is recovering.",
			"Each stuck shim costs containerd seconds at start: `ps -eo pid,stat,etime,args | grep '[s]him'`.",
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
			case (cause == CauseMissing || cause == CauseRefused) && w.on(sigJustListening):
				return append([]string{"it has just begun to listen"}, w.youngEvidence()...)
			case cause == CauseMissing && w.listensSince(w.f.Probe.FailedSince):
				return nil // the socket's file alone is gone
			case cause == CauseMissing || cause == CauseRefused:
				return append([]string{"it does not listen yet"}, w.youngEvidence()...)
			case hanging && q != nil && q.Listening && q.Length > 0:
				return append([]string{fmt.Sprintf("it listens and has accepted nothing: accept queue %d of %d", q.Length, q.Limit)}, w.youngEvidence()...)
			case hanging && w.age(p.Start) <= startsFor:
				return append([]string{"it listens and has answered nothing yet"}, w.youngEvidence()...)
			}
			return nil
		},
	},
	{
		ID: RuntimeUnresponsive, Layer: LayerCalls, Severity: SeverityCritical,
		Meaning:    "The runtime may accept connections but answers no calls: every call hangs.",
		Needs:      "a list and a Version call beside it are unanswered, and nothing has been answered since.",
		Thresholds: append(slices.Clone(listHangs), Threshold{"Version unanswered for %s", hangProbeAfter}),
		Next:       "See what state the runtime's threads are in before you restart it.",
		Steps: []string{
			"`ps -L -o tid,stat,wchan:32,comm -p {pid}`: T is stopped, D waits for the kernel (disk), S sleeps on a lock.",
			"`cat /proc/pressure/{cpu,io,memory}`: is the whole node starved?",
			stacksStep,
			"`systemctl restart {unit}`: running containers are kept.",
		},
		Restart: HelpsMaybe, RestartNote: "Not when its threads are in D: a process in D cannot be killed.",
		match: func(w *view) []string {
			if c, _ := w.connect(); c != CauseNone || w.f.Endpoint.Path == "" || !w.on(sigNothingAnswers) {
				return nil
			}
			if since, ok := w.hangSince(); ok && w.quotaUnmeasured(since) {
				return nil
			}
			return append(w.callEvidence(), w.acceptEvidence()...)
		},
	},
	{
		ID: RuntimeListStall, Layer: LayerCalls, Severity: SeverityCritical,
		Meaning:    "One list hangs while the runtime answers other calls: a lock inside the runtime, usually one container's.",
		Needs:      "ListPodSandbox or ListContainers is unanswered, and another call has been answered since it began.",
		Thresholds: listHangs,
		Next:       "Look for a shim or a runc that holds the lock before you restart the runtime.",
		Steps: []string{
			"`plegd status`: ShimStuck or RuntimeHelperStuck beside this reason names the process that the lock waits for. `kill -CONT` of a stopped shim, or the end of a runc that hangs, is enough.",
			"`{crictl} pods`, `{crictl} ps`: the one that runs into its time limit shows which lock. `{crictl} inspect CONTAINER` does, too, for the container that holds it.",
			stacksStep,
			"`systemctl restart {unit}` helps only where no shim is stuck.",
		},
		Restart: HelpsMaybe, RestartNote: "Not while a shim is stuck: the restart then takes long and its pod's running containers are called EXITED, without an owner. Behind a runc that hangs, lists are answered 1 s after the restart and no container is lost (tried on containerd 1.6, 1.7 and 2.4).",
		Notes: []VersionNote{
			{For: []Versions{containerd16, containerd17}, Restart: HelpsMaybe, RestartNote: "With a stuck shim the first list is answered 15 to 19 s after the restart, and the running containers of its pod are EXITED."},
			{For: []Versions{containerdFrom20}, Restart: HelpsMaybe, RestartNote: "With a stuck shim containerd does not end on SIGTERM; after SIGKILL the first list is answered after 11 s, and the running containers of its pod are EXITED."},
		},
		match: func(w *view) []string {
			since, ok := w.hangSince()
			if !ok || !w.otherCallAnswered(since) || w.on(sigNothingAnswers) || w.streaming() != nil || w.quotaUnmeasured(since) {
				return nil
			}
			return w.callEvidence()
		},
	},
	{
		ID: ListResponseTooLarge, Layer: LayerCalls, Severity: SeverityCritical,
		Meaning: "A list has outgrown the largest message: the kubelet can no longer see its containers.",
		Needs:   "a list fails with ResourceExhausted and names the size; or it is that long when plegd streams it (StreamContainers, StreamPodSandboxes), which stands for what the kubelet would be refused.",
		Thresholds: []Threshold{
			{"%s bytes, the kubelet's limit and containerd's", messageLimit},
		},
		Next: "Remove exited containers; then find what leaves so many of them.",
		Steps: []string{
			"`{crictl} ps -a -q | wc -l`, `{crictl} pods -q | wc -l`: around 15,000 containers fill 16 MiB.",
			"`{crictl} rm $({crictl} ps -a -q --state Exited)` if crictl can still list; else pod by pod, which are shorter lists: `for p in $({crictl} pods -q); do {crictl} rm $({crictl} ps -a -q --pod $p); done`. It refuses those that run.",
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
				out = append(out, fmt.Sprintf("plegd lists %d containers by streaming; most kubelets cannot", w.f.Pods.total()))
			}
			return out
		},
	},
	{
		ID: RuntimeNotReady, Layer: LayerCalls, Severity: SeverityCritical,
		Meaning: "Status does not say that the runtime is ready: it says RuntimeReady=false, or gives no answer while other calls do.",
		Needs:   "the last Status answer holds no RuntimeReady=true; or Status fails or is unanswered while the lists are answered.",
		Thresholds: []Threshold{
			{"Status unanswered for %s", statusHangAfter},
		},
		Next: "Read the runtime's own reason below, then its log.",
		Steps: []string{
			"`{crictl} info`: the conditions with their messages.",
			"`journalctl -u {unit} -b -n 200`.",
			"The kubelet turns the node NotReady 30 s after the last good Status, at once when it says RuntimeReady=false.",
		},
		Restart: HelpsMaybe,
		match: func(w *view) []string {
			s := &w.f.Status
			if s.Answered && !s.RuntimeReady.Good() {
				return []string{w.statusSays(s.RuntimeReady.print("RuntimeReady"))}
			}
			if !w.on(sigStatusTrouble) || !w.on(sigAnsweredWhileStatusFails) || w.on(sigStatusFailsForDescriptors) {
				return nil
			}
			if e := s.LastErr; e != nil && strings.Contains(e.Message, "too many open files") && !w.processSeenSince(w.f.Calls[opStatus].LastFailed) {
				return nil // its descriptors have yet to be counted
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
		ID: NodeStatusStalled, Layer: LayerCalls, Severity: SeverityWarning,
		Meaning: "Version is not answered while other calls are. The kubelet's node status update begins with it: while it waits, up to its RPC timeout, no condition of the node is written.",
		Needs:   "a Version call on the held connection is unanswered, and the lists and Status are answered after its start, the lists at once.",
		Thresholds: []Threshold{
			{"Version unanswered for %s", versionReasonAfter},
		},
		Next: "Take the runtime's goroutine stacks, then look for the call that holds up Version.",
		Steps: []string{
			"`{crictl} version`: does it return?",
			"`kubectl describe node`: its conditions keep the values and heartbeat times of the last update. Pods are managed as before.",
			"The node stays Ready even where it should not be: watch other signals until it ends.",
		},
		Restart: HelpsMaybe,
		match: func(w *view) []string {
			since := w.f.Version.HangsSince
			lists := laterOf(w.f.Calls[string(PhaseListContainers)].LastOK, w.f.Relist.LastSeen)
			_, _, hanging := w.hang()
			if since.IsZero() || w.age(since) < versionReasonAfter || hanging || w.on(sigStatusTrouble) {
				return nil
			}
			if w.f.Relist.Failures > 0 || !lists.After(since.Add(answerAfterStatus)) {
				return nil
			}
			if !w.on(sigListsAnsweredAtOnce) {
				return nil // everything has hung, and the list is only the first to be answered
			}
			return []string{
				fmt.Sprintf("version unanswered for %s", short(w.age(since))),
				fmt.Sprintf("lists are answered, the last %s ago", short(w.age(lists))),
			}
		},
	},
	{
		ID: NetworkNotReady, Layer: LayerPods, Severity: SeverityCritical,
		Meaning: "The runtime says that the pod network is not ready: usually the CNI configuration is missing.",
		Needs:   "the last Status answer holds no NetworkReady=true.",
		Next:    "See whether the CNI plugin's pod runs on this node and has written /etc/cni/net.d.",
		Steps: []string{
			"`ls -l /etc/cni/net.d /opt/cni/bin`: a configuration and its binaries must be there.",
			"`{crictl} info | grep -A3 lastCNILoadStatus`: the real error.",
			"`{crictl} ps -a | grep -e cni -e calico -e cilium -e flannel`: is the network's agent running here?",
		},
		Restart: HelpsNo, RestartNote: "The runtime needs a CNI configuration.",
		Notes: []VersionNote{
			{For: []Versions{containerd16}, Restart: HelpsMaybe, RestartNote: "containerd reads a configuration when it is written to /etc/cni/net.d; it does not notice one that is moved there (rename) until it is restarted."},
			{For: []Versions{containerd17}, Restart: HelpsMaybe, RestartNote: "Needed where the directory /etc/cni/net.d was removed and made again: containerd no longer watches it, and NetworkReady stays false until a restart. A configuration that is written to the old directory is read at once."},
			{For: []Versions{containerdFrom20}, Restart: HelpsNo, RestartNote: "containerd reads a configuration when it is written to /etc/cni/net.d. It exits when that directory is removed.",
				Step: "`journalctl -u {unit} -b | grep -i cni`: containerd exits when its CNI directory is removed."},
			{For: []Versions{crioAll}, Step: "CRI-O keeps saying NetworkReady=true once it has had a configuration: that it is gone shows only in pods that do not start, and here after CRI-O's next start."},
		},
		match: func(w *view) []string {
			if s := &w.f.Status; s.Answered && !s.NetworkReady.Good() {
				return []string{w.statusSays(s.NetworkReady.print("NetworkReady"))}
			}
			return nil
		},
	},
}

// statusSays is a condition of the last Status that was answered, with its age
// where a later one has failed.
func (w *view) statusSays(condition string) string {
	if ok := w.f.Calls[opStatus].LastOK; w.f.Status.LastErr != nil && !ok.IsZero() {
		return fmt.Sprintf("the last Status that was answered, %s ago, says %s", short(w.age(ok)), condition)
	}
	return "Status says " + condition
}

// youngFor is how long after its start a runtime that does not serve yet counts
// as starting: recovering hundreds of pods takes minutes at worst.
const youngFor = 5 * time.Minute

// startsFor is the same for one that accepts and answers nothing: containerd 2.x
// with 80 pods took 9 s on a busy node.
const startsFor = 30 * time.Second

func (w *view) youngEvidence() []string {
	p := w.f.Evidence.Process
	if p == nil || !p.Alive {
		return nil
	}
	return []string{fmt.Sprintf("pid %d was started %s ago", p.PID, short(w.age(p.Start)))}
}
