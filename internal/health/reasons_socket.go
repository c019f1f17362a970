package health

import (
	"fmt"
	"slices"
	"time"
)

// socketReasons speak of the runtime's socket and its accept queue.
var socketReasons = []Reason{
	{
		ID: AcceptFDExhausted, Severity: SeverityCritical,
		Meaning:  "The runtime has no file descriptor left: it answers on old connections and can accept no new one. It logs nothing of this.",
		Needs:    "open descriptors at or above the soft limit, now or a moment ago, and a connection that waits to be accepted.",
		Numbers:  "fds >= RLIMIT_NOFILE in the last 3s and an accept queue above 0, or no SETTINGS within --probe-timeout (1s).",
		Outranks: slices.Concat(accept, calls),
		Next:     "Raise LimitNOFILE in the runtime's unit, find what holds the descriptors, and restart the runtime.",
		Steps: []string{
			"`ls -l /proc/$(pidof containerd)/fd | awk '{print $NF}' | sed 's/:.*//' | sort | uniq -c`: sockets, pipes or files?",
			"`ss -xp | grep containerd.sock`: clients that connect and do not let go.",
			"`prlimit --nofile=65536:65536 --pid $(pidof containerd)` mends it at once, until the next restart.",
			"Do not restart the kubelet: its held connection is all that keeps the node Ready.",
		},
		Restart: HelpsYes, RestartNote: "It frees the descriptors; running containers are kept.",
		match: func(w *view) []string {
			if !w.noFDToAccept() {
				return nil
			}
			out := append(w.acceptEvidence(), w.heldEvidence())
			if w.fdsFreed() {
				out = append(out, fmt.Sprintf("no descriptor was free until %s ago; it tries again within a second", short(w.age(w.f.Evidence.Process.ExhaustedAt))))
			}
			return out
		},
	},
	{
		ID: RuntimeSocketMissing, Severity: SeverityCritical,
		Meaning:  "There is no socket at the runtime's path: the runtime has been stopped, or was never started.",
		Needs:    "connect fails with ENOENT and no earlier connection is answered; or no runtime socket was found at any known place.",
		Outranks: slices.Concat([]string{CRIVersionUnsupported}, accept, calls),
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
		Outranks: slices.Concat([]string{CRIVersionUnsupported, RuntimeSocketUnlinked}, accept, calls),
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
		Outranks: slices.Concat([]string{CRIVersionUnsupported, RuntimeSocketUnlinked}, accept, calls),
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
		Meaning:  "The runtime runs and answers, but its socket's path is gone, or leads to something else: whoever connects anew fails.",
		Needs:    "a fresh connect fails with ENOENT, or meets what does not serve runtime.v1, while calls on the connection held since before are answered.",
		Outranks: pods,
		Next:     "Restart the runtime in a quiet moment; until then a restart of the kubelet would leave the node NotReady.",
		Steps: []string{
			"Find out what removed the socket: a clean-up of /run, a second runtime started by mistake, a package upgrade.",
			"Do not restart the kubelet before the socket is back: it would not be able to connect.",
			"`systemctl restart containerd` makes the socket again; running containers are kept.",
		},
		Restart: HelpsYes, RestartNote: "It makes the socket again.",
		match: func(w *view) []string {
			switch _, c, _ := w.beside(); c {
			case CauseProtocol, CauseUnimplemented:
				return []string{
					fmt.Sprintf("something else listens at its path, for %s: a fresh connection: %s", short(w.age(w.f.Probe.FailedSince)), probeText(w.f.Probe)),
					fmt.Sprintf("the connection held since before was answered %s ago", short(w.age(w.lastAnswer))),
				}
			case CauseMissing:
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
		Needs:    "connect fails with EAGAIN, or the listener's queue holds more than its limit.",
		Outranks: slices.Concat([]string{AcceptStalled}, calls),
		Next:     "Find who connects and does not let go, and why the runtime does not accept; then restart the runtime.",
		Steps: []string{
			"`ss -xlp | grep containerd.sock`: Recv-Q above Send-Q is a full queue.",
			"`ss -xp | grep containerd.sock | wc -l`: how many connections, and whose.",
			"`ls /proc/$(pidof containerd)/fd | wc -l` against `grep files /proc/$(pidof containerd)/limits`.",
		},
		Restart: HelpsYes, RestartNote: "It empties the queue; without mending the cause it fills again.",
		match: func(w *view) []string {
			if c, detail := w.connect(); c == CauseQueueFull {
				return append(w.connectEvidence(detail), w.acceptEvidence()...)
			}
			q := w.f.Evidence.Queue
			full := q != nil && q.Listening && q.Length > q.Limit
			_, c, _ := w.beside()
			// What a probe met before the queue was last looked at may be over.
			since := q != nil && q.Listening && q.At.After(w.f.Probe.At)
			if !full && (c != CauseQueueFull || since) {
				return nil
			}
			return append(w.acceptEvidence(), w.heldEvidence())
		},
	},
	{
		ID: AcceptStalled, Severity: SeverityCritical,
		Meaning:  "The runtime answers on old connections and accepts no new one: the next reconnect, the kubelet's included, will hang.",
		Needs:    "a fresh connection is made by the kernel and gets no HTTP/2 SETTINGS, or the accept queue does not empty, while calls on the held connection are answered.",
		Numbers:  "no SETTINGS within --probe-timeout (1s); a queue above 0 for 2s.",
		Outranks: slices.Concat([]string{RuntimeNotReady, NetworkNotReady}, pods),
		Next:     "See where the runtime's accepting thread is; it has descriptors left.",
		Steps: []string{
			"`ss -xlp | grep containerd.sock`: a growing Recv-Q is connections that nobody accepts.",
			"Do not restart the kubelet: its held connection is all that keeps the node Ready.",
			"`kill -USR1 $(pidof containerd)`: containerd writes its goroutine stacks to its log.",
		},
		Restart: HelpsYes, RestartNote: "Running containers are kept.",
		match: func(w *view) []string {
			if w.fdsExhausted() || w.fdsFreed() || !w.heldAnswers() || !w.notAccepting() {
				return nil
			}
			out := w.acceptEvidence()
			if stage, c, _ := w.beside(); stage == StageSettings && c != CauseNone {
				out = append(out, fmt.Sprintf("a fresh connection: %s for %s", probeText(w.f.Probe), short(w.age(w.f.Probe.FailedSince))))
			}
			return append(out, w.heldEvidence())
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

// queueWaits is how long the accept queue must hold something for the runtime
// to count as not accepting.
const queueWaits = 2 * time.Second

const (
	// acceptsAgain is how long after its descriptors were last used up a runtime
	// may take until it accepts again: containerd waits for up to a second before
	// it tries again (grpc-go's Serve), and what was seen is up to a second old.
	acceptsAgain = 3 * time.Second
	// queueFalls is how long ago a queue must have fallen to count as being
	// worked off.
	queueFalls = time.Second
)

// fdsExhausted tells whether the runtime has used up its file descriptors.
func (w *view) fdsExhausted() bool {
	p := w.f.Evidence.Process
	return p != nil && p.FDsExhausted()
}

// fdsFreed tells whether it had until a moment ago.
func (w *view) fdsFreed() bool {
	p := w.f.Evidence.Process
	return p != nil && p.Alive && !p.FDsExhausted() && !p.ExhaustedAt.IsZero() && w.age(p.ExhaustedAt) <= acceptsAgain
}

// noFDToAccept tells whether the runtime has no descriptor, or has yet to notice
// that it has one again, and somebody waits to be accepted.
func (w *view) noFDToAccept() bool {
	if !w.fdsExhausted() && (!w.fdsFreed() || w.workedOff()) {
		return false
	}
	q := w.f.Evidence.Queue
	return w.notAccepting() || q != nil && q.Length > 0
}

// workedOff tells whether the accept queue is being emptied.
func (w *view) workedOff() bool {
	q := w.f.Evidence.Queue
	return q != nil && q.Listening && !q.FellAt.IsZero() && w.age(q.FellAt) <= queueFalls && q.Length <= q.Limit
}

// notAccepting tells whether a connection waits to be accepted for longer than
// it should.
func (w *view) notAccepting() bool {
	if w.workedOff() {
		return false
	}
	if p := w.f.Probe; !p.FailedSince.IsZero() && p.Stage == StageSettings && p.Cause == CauseTimeout {
		// A probe waits on for an answer; the queue says whether it still does.
		if q := w.f.Evidence.Queue; q == nil || !q.Listening || q.Length > 0 || q.At.Before(p.At) {
			return true
		}
	}
	q := w.f.Evidence.Queue
	return q != nil && q.Listening && !q.WaitingSince.IsZero() && w.age(q.WaitingSince) >= queueWaits
}

// heldAnswers tells whether calls on the held connection are answered, and have
// been since the runtime stopped to accept.
func (w *view) heldAnswers() bool {
	if _, _, hanging := w.hang(); hanging || w.f.Relist.Failures > 0 || !w.steady() {
		return false
	}
	if p := w.f.Probe; !p.FailedSince.IsZero() && w.lastAnswer.After(p.FailedSince) {
		return true
	}
	q := w.f.Evidence.Queue
	return q != nil && !q.WaitingSince.IsZero() && w.lastAnswer.After(q.WaitingSince)
}

// acceptEvidence are the numbers of the queue and of the process behind it.
func (w *view) acceptEvidence() []string {
	var out []string
	if q := w.f.Evidence.Queue; q != nil && q.Listening {
		out = append(out, fmt.Sprintf("accept queue %d of %d", q.Length, q.Limit))
	}
	if p := w.f.Evidence.Process; p != nil && p.Alive {
		if p.OpenFDs >= 0 && p.MaxFDs > 0 {
			out = append(out, fmt.Sprintf("fds %d of %d", p.OpenFDs, p.MaxFDs))
		}
		if t := threadsText(p); t != "" {
			out = append(out, t)
		}
	}
	return out
}

func (w *view) heldEvidence() string {
	if w.lastAnswer.IsZero() {
		return "nothing has been answered since plegd started"
	}
	return fmt.Sprintf("the connection held since before was answered %s ago", short(w.age(w.lastAnswer)))
}
