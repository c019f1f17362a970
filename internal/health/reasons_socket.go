package health

import "fmt"

// socketReasons speak of the runtime's socket and its accept queue.
var socketReasons = []Reason{
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
}

// connectEvidence says why no connection can be made and what was last answered.
func (w *view) connectEvidence(detail string) []string {
	out := []string{"connect fails: " + detail}
	if w.lastAnswer.IsZero() {
		return append(out, "nothing has been answered since plegd started")
	}
	return append(out, fmt.Sprintf("last answer %s ago", short(w.age(w.lastAnswer))))
}
