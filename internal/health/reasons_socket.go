package health

import (
	"fmt"
	"time"
)

// socketReasons speak of the runtime's socket and its accept queue.
var socketReasons = []Reason{
	{
		ID: AcceptFDExhausted, Layer: LayerProcess, Severity: SeverityCritical,
		Meaning: "The runtime has no file descriptor left: it answers on old connections and can accept no new one. It logs nothing of this.",
		Needs:   "open descriptors at or above the soft limit, now or a moment ago, and a connection that waits to be accepted.",
		Thresholds: []Threshold{
			{"no free descriptor in the last %s, and connections pending in the accept queue, or no SETTINGS within --probe-timeout", acceptsAgain},
		},
		Next: "Raise LimitNOFILE in the runtime's unit, find what holds the descriptors, and restart the runtime.",
		Steps: []string{
			"`ls -l /proc/{pid}/fd | awk '{print $NF}' | sed 's/:.*//' | sort | uniq -c`: sockets, pipes or files?",
			"`ss -xp | awk -v s={socket} '$5==s {want[$8]} {line[$6]=$0} END {for (i in want) print line[i]}'`: the clients of the socket, with their processes.",
			"`prlimit --nofile=65536:65536 --pid {pid}` helps at once, until the next restart.",
			"Do not restart the kubelet: it cannot connect again.",
		},
		Restart: HelpsYes, RestartNote: "It frees the descriptors, and running containers are kept. containerd does not end on SIGTERM while idle connections are open: systemd kills it after TimeoutStopSec (90s unless the unit says otherwise). Lists are answered 1 s after the start (tried on 1.6, 1.7 and 2.4).",
		Notes: []VersionNote{
			{For: []Versions{containerd16}, Step: "Status is answered without a free descriptor: the node stays Ready for as long as the kubelet keeps its connection."},
			{For: statusNeedsFile, Step: "Status opens a file and fails: the kubelet turns the node NotReady 30 s after the last good Status, although its connection still works."},
		},
		match: func(w *view) []string {
			if !w.on(sigAcceptNeedsDescriptor) && !w.on(sigStatusFailsForDescriptors) {
				return nil
			}
			out := append(w.acceptEvidence(), w.heldEvidence())
			switch e := w.f.Status.LastErr; {
			case e != nil && w.on(sigStatusFailsForDescriptors):
				out = append(out, fmt.Sprintf("status fails: %s: %s", e.Code, e.Message))
			case statusWillFail(w.f):
				out = append(out, fmt.Sprintf("Status of %s %s needs a descriptor: the next one fails", w.f.Runtime.Name, w.f.Runtime.Version))
			}
			if w.on(sigDescriptorsFreed) {
				out = append(out, fmt.Sprintf("no descriptor was free until %s ago; it tries again within a second", short(w.age(w.f.Evidence.Process.ExhaustedAt))))
			}
			return out
		},
	},
	{
		ID: RuntimeSocketTakenOver, Layer: LayerSocket, Severity: SeverityCritical,
		Meaning: "The runtime's path leads to another process than the connection that was made before: a second runtime, a symbolic link or a bind mount to another one, or a program that is no runtime. The kubelet uses the old one until it reconnects, then the new one.",
		Needs:   "the process that listens at the path (SO_PEERCRED of a fresh connection, or the owner of the listening socket) is not the one behind the held connection, and that one is alive.",
		Next:    "Find out which of the two processes is this node's runtime, stop the other, and put the socket back.",
		Steps: []string{
			"`ps -o pid,lstart,args -p {pid},{other}` of the two processes in the evidence: which one has been started by mistake?",
			"`ls -li {socket}` and `findmnt -T {socket}`: a symbolic link, a bind mount, or a socket that another process made?",
			"Do not restart the kubelet before the path leads to the right runtime: it would lose its pods from sight, and start them again in the other one.",
			"Stop the wrong process, remove the link or the mount. Where the second one has replaced the socket's file, only a restart of the right runtime makes it again.",
		},
		Restart: HelpsMaybe, RestartNote: "It makes the socket's file again, once the other process, the link or the mount is gone.",
		match: (*view).takenOverEvidence, next: (*view).takenOverNext,
	},
	{
		ID: RuntimeSocketMissing, Layer: LayerSocket, Severity: SeverityCritical,
		Meaning: "There is no socket at the runtime's path: the runtime has been stopped, or was never started.",
		Needs:   "connect fails with ENOENT and no earlier connection is answered; or no runtime socket was found at any known place.",
		Next:    "Start the runtime, and see in its log why it stopped.",
		Steps: []string{
			"`systemctl status {unit}`: is it stopped, failed, or restarting?",
			"`journalctl -u {unit} -b --since -15min`: its last words.",
			"If it runs under another path, set `--runtime-endpoint`; `plegd status` shows which path it watches and why.",
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
			if c, detail := w.connect(); c == CauseMissing && !w.on(sigListensUnlinked) {
				return append(w.hiddenEvidence(), w.connectEvidence(detail)...)
			}
			return nil
		},
		next: func(w *view) string {
			if w.hiddenEvidence() == nil {
				return ""
			}
			return fmt.Sprintf("Mount the directory of %s into plegd's pod: the runtime listens there, and the kubelet is fine.", w.f.Endpoint.Path)
		},
	},
	{
		ID: RuntimeNotListening, Layer: LayerSocket, Severity: SeverityCritical,
		Meaning: "The socket's path exists, but nobody listens on it: the runtime was killed, or the path is no socket.",
		Needs:   "connect fails with ECONNREFUSED, or what stands at the path is no socket.",
		Next:    "Start the runtime; look for an OOM kill or a crash first.",
		Steps: []string{
			"`systemctl status {unit}`: exit code and signal of the last run.",
			"`journalctl -k -b | grep -i -e oom -e killed`: was it killed for memory?",
			"`journalctl -u {unit} -b -n 200`: a panic is printed at the end.",
		},
		Restart: HelpsYes, RestartNote: "It is not running: start it.",
		match: func(w *view) []string {
			if c, detail := w.connect(); c == CauseRefused || c == CauseNotSocket {
				return w.connectEvidence(detail)
			}
			if _, c, detail := w.freshDialFailure(); c == CauseRefused || c == CauseNotSocket {
				return []string{"a fresh connect fails: " + detail, "the connection held since before still answers: another process runs behind it"}
			}
			return nil
		},
	},
	{
		ID: RuntimeSocketPermissionDenied, Layer: LayerPlegd, Severity: SeverityCritical,
		Meaning: "plegd may not connect to the runtime's socket.",
		Needs:   "connect fails with EACCES or EPERM.",
		Next:    "Compare the socket's owner and mode with the user that plegd runs as; the kubelet may be fine.",
		Steps: []string{
			"`stat {socket}` and its directories: root:root 0660 is usual.",
			"plegd has to run as root (it needs no capability for this); in a pod, as uid 0 with the SELinux type spc_t.",
			"`ausearch -m avc -ts recent`: has SELinux or AppArmor refused it?",
		},
		Restart: HelpsMaybe, RestartNote: "Only when its mode was changed by hand: a restart recreates the socket.",
		match: func(w *view) []string {
			if c, detail := w.connect(); c == CausePermissionDenied {
				return w.connectEvidence(detail)
			}
			if _, c, detail := w.freshDialFailure(); c == CausePermissionDenied {
				return []string{"a fresh connect fails: " + detail, "the connection held since before still answers"}
			}
			return nil
		},
	},
	{
		ID: RuntimeSocketUnlinked, Layer: LayerSocket, Severity: SeverityWarning, criticalWhile: (*view).relistSuffers,
		Meaning: "The runtime runs and answers, but its socket's path is gone, or leads to something else: new connections fail.",
		Needs:   "a fresh connect fails with ENOENT, or meets what does not serve runtime.v1, while calls on the connection held since before are answered; or connect fails with ENOENT while the runtime's process still has a listening socket of that name.",
		Thresholds: []Threshold{
			{"something else at the path for %s", strangerAfter},
		},
		Next: "Restart the runtime in a quiet moment; until then a restart of the kubelet would leave the node NotReady.",
		Steps: []string{
			"Find out what removed the socket: a clean-up of /run, a second runtime started by mistake, a package upgrade.",
			"Do not restart the kubelet before the socket is back: it would not be able to connect.",
			"`systemctl restart {unit}` makes the socket again; running containers are kept.",
		},
		Restart: HelpsYes, RestartNote: "It makes the socket again; lists are answered after 1 s and containers are kept (tried on containerd 1.6, 1.7 and 2.4).",
		match: func(w *view) []string {
			_, c, _ := w.freshDialFailure()
			foreign := c == CauseProtocol || c == CauseUnimplemented
			switch {
			case w.elsewhere() != nil:
				return nil
			case w.on(sigListensUnlinked):
				_, detail := w.connect()
				return append([]string{w.f.Evidence.Process.name() + " is alive and listens, but its socket's file is gone"}, w.connectEvidence(detail)...)
			case foreign && w.age(w.f.Probe.FailedSince) >= strangerAfter && !w.on(sigListenerChanged):
				return []string{
					fmt.Sprintf("something else listens at its path, for %s: a fresh connection: %s", short(w.age(w.f.Probe.FailedSince)), ProbeText(&w.f.Probe)),
					fmt.Sprintf("the connection held since before was answered %s ago", short(w.age(w.lastAnswer))),
				}
			case c == CauseMissing:
				return []string{
					fmt.Sprintf("no socket at its path for %s", short(w.age(w.f.Probe.FailedSince))),
					fmt.Sprintf("the connection held since before was answered %s ago", short(w.age(w.lastAnswer))),
				}
			}
			return nil
		},
	},
	{
		ID: AcceptQueueFull, Layer: LayerSocket, Severity: SeverityCritical,
		Meaning: "The queue of connections that the runtime has yet to accept is full: nobody can connect.",
		Needs:   "connect fails with EAGAIN, or the listener's queue holds more than its limit.",
		Next:    "Find who connects and does not let go, and why the runtime does not accept; then restart the runtime.",
		Steps: []string{
			"`ss -xlp src {socket}`: Recv-Q above Send-Q is a full queue.",
			"`ss -xp | awk -v s={socket} '$5==s {want[$8]} {line[$6]=$0} END {for (i in want) print line[i]}'`: the clients that were accepted, with their processes.",
			"`ls /proc/{pid}/fd | wc -l` against `grep files /proc/{pid}/limits`.",
		},
		Restart: HelpsYes, RestartNote: "It empties the queue; it fills again while its cause is there. Lists are answered 1 s after the start (tried on containerd 1.6, 1.7 and 2.4).",
		match: func(w *view) []string {
			if c, detail := w.connect(); c == CauseQueueFull {
				return append(w.connectEvidence(detail), w.acceptEvidence()...)
			}
			q := w.f.Evidence.Queue
			full := q != nil && q.Listening && q.Length > q.Limit
			_, c, _ := w.freshDialFailure()
			// What a probe met before the queue was last looked at may be over.
			since := q != nil && q.Listening && q.At.After(w.f.Probe.At)
			refused := c == CauseQueueFull && !since
			if w.elsewhere() != nil || !full && !refused {
				return nil
			}
			return append(w.acceptEvidence(), w.heldEvidence())
		},
	},
	{
		ID: AcceptStalled, Layer: LayerSocket, Severity: SeverityCritical,
		Meaning: "The runtime answers on old connections and accepts no new one: the next reconnect, the kubelet's included, will hang.",
		Needs:   "a fresh connection is made by the kernel and gets no HTTP/2 SETTINGS, or the accept queue does not empty, while calls on the held connection are answered.",
		Thresholds: []Threshold{
			{"no SETTINGS within --probe-timeout", nil},
			{"connections pending in the accept queue for %s", queueWaits},
			{"for %s where the queue is not seen", queueUnseenWaits},
			{"%s after it was last found stopped", acceptsAfterStop},
		},
		Next: "See where the runtime's accepting thread is; it has descriptors left.",
		Steps: []string{
			"`ss -xlp src {socket}`: a growing Recv-Q is connections that nobody accepts.",
			"Do not restart the kubelet: its held connection is all that keeps the node Ready.",
			stacksStep,
		},
		Restart: HelpsYes, RestartNote: "Running containers are kept.",
		match: func(w *view) []string {
			if w.on(sigDescriptorsExhausted) || w.on(sigDescriptorsFreed) || !w.on(sigHeldConnectionAnswers) || !w.on(sigNotAccepting) {
				return nil
			}
			if p := w.f.Probe; p.waitsForSettings() && !w.processSeenSince(p.FailedSince.Add(probeTimeout)) {
				return nil // it may only get no CPU
			}
			if p := w.f.Evidence.Process; p != nil && !p.StoppedAt.IsZero() && w.age(p.StoppedAt) < acceptsAfterStop {
				return nil // the queue is yet to be looked at since it runs again
			}
			out := w.acceptEvidence()
			if stage, c, _ := w.freshDialFailure(); stage == StageSettings && c != CauseNone {
				out = append(out, fmt.Sprintf("a fresh connection: %s for %s", ProbeText(&w.f.Probe), short(w.age(w.f.Probe.FailedSince))))
			}
			return append(out, w.heldEvidence())
		},
	},
}

// hiddenEvidence says that the socket is there for the runtime and missing in
// plegd's own mounts; nil where it is not so.
func (w *view) hiddenEvidence() []string {
	l := w.f.Evidence.Listener
	if l == nil || !l.OtherMounts {
		return nil
	}
	return []string{l.name() + " listens there, and the path exists in its mounts: it is missing in plegd's own only"}
}

// connectEvidence says why no connection can be made and what was last answered.
func (w *view) connectEvidence(detail string) []string {
	out := []string{"connect fails: " + detail}
	if w.lastAnswer.IsZero() {
		return append(out, "nothing has been answered since plegd started")
	}
	return append(out, fmt.Sprintf("last answer %s ago", short(w.age(w.lastAnswer))))
}

// listensUnlinked reports whether no connection can be made because the path has
// no file, although the runtime's process listens on a socket of that name. A
// connect that failed before the listener was first seen proves nothing: the
// runtime may have bound its socket since.
func (w *view) listensUnlinked() bool {
	p, q, l := w.f.Evidence.Process, w.f.Evidence.Queue, w.f.Evidence.Listener
	if c, _ := w.connect(); c != CauseMissing || p == nil || q == nil || l == nil {
		return false
	}
	if l.OtherMounts || w.on(sigJustListening) {
		return false
	}
	since := w.f.Probe.FailedSince // all must have been looked at since
	if !w.listensSince(since) || p.At.Before(since) || l.At.Before(since) {
		return false
	}
	return p.Alive && q.Inode == l.Inode && l.PID == p.PID
}

// listensSince reports whether a socket of the path's name has been seen to listen
// since a fresh connect first failed.
func (w *view) listensSince(failed time.Time) bool {
	q := w.f.Evidence.Queue
	return q != nil && q.Listening && !failed.IsZero() && w.f.Probe.Stage == StageConnect && q.At.After(failed)
}

// justListening reports whether no fresh connect has begun since the listener was
// first seen. Only the fresh dial's start counts: the time of the held
// connection's connect is that of its end.
func (w *view) justListening() bool {
	q := w.f.Evidence.Queue
	if q == nil || !q.Listening || q.ListeningSince.IsZero() {
		return false
	}
	return !w.f.Probe.At.After(q.ListeningSince)
}

// listenerChanged reports whether another socket or process is at the path than
// the last probe met.
func (w *view) listenerChanged() bool {
	l, q := w.f.Evidence.Listener, w.f.Evidence.Queue
	if w.probedBefore(q) {
		return true
	}
	if l == nil {
		return false
	}
	return q != nil && q.Inode != l.Inode || l.Since.After(w.f.Probe.At)
}

// probedBefore reports whether what the last probe met has gone since, or another
// socket listens since: nobody has connected to that one yet.
func (w *view) probedBefore(q *Queue) bool {
	switch {
	case q == nil:
		return false
	case q.Listening:
		return q.ListeningSince.After(w.f.Probe.At)
	}
	return q.At.After(w.f.Probe.At)
}

// strangerAfter is how long something else must be met at the path before that is
// said of it: by then it is usually known whose it is (RuntimeSocketTakenOver).
const strangerAfter = 2 * time.Second

// queueWaits is how long the accept queue must hold something for the runtime
// to count as not accepting.
const queueWaits = 2 * time.Second

// queueUnseenWaits is the same for a fresh connection whose place in the queue is
// not seen: two probes and more have had no answer by then.
const queueUnseenWaits = 4 * time.Second

const (
	// listenerFound is how soon the process behind a new socket at the path is
	// known, on a busy node too.
	listenerFound = 3 * time.Second
	// acceptsAgain is how long after its descriptors were last used up a runtime
	// may take until it accepts again: containerd waits for up to a second before
	// it tries again (grpc-go's Serve), and what was seen is up to a second old.
	acceptsAgain = 3 * time.Second
	// queueFalls is how long ago a queue must have fallen to count as being
	// worked off.
	queueFalls = time.Second
)

// descriptorsExhausted reports whether the runtime has used up its file descriptors.
func (w *view) descriptorsExhausted() bool {
	p := w.f.Evidence.Process
	return p != nil && p.FDsExhausted()
}

// descriptorsFreed reports whether it had until a moment ago.
func (w *view) descriptorsFreed() bool {
	p := w.f.Evidence.Process
	return p != nil && p.Alive && !p.FDsExhausted() && !p.ExhaustedAt.IsZero() && w.age(p.ExhaustedAt) <= acceptsAgain
}

// acceptNeedsDescriptor reports whether the runtime has no descriptor, or has yet to notice
// that it has one again, and somebody waits to be accepted.
func (w *view) acceptNeedsDescriptor() bool {
	if !w.on(sigDescriptorsExhausted) && (!w.on(sigDescriptorsFreed) || w.on(sigAcceptQueueDrains)) {
		return false
	}
	waits := w.f.Probe.waitsForSettings()
	if q := w.f.Evidence.Queue; q != nil {
		waits = q.Length > 0
	}
	return w.on(sigNotAccepting) || waits && w.elsewhere() == nil
}

// acceptQueueDrains reports whether the accept queue is being emptied.
func (w *view) acceptQueueDrains() bool {
	q := w.f.Evidence.Queue
	return q != nil && q.Listening && !q.FellAt.IsZero() && w.age(q.FellAt) <= queueFalls && q.Length <= q.Limit
}

// listenerUnknown reports whether another socket is at the path than the one whose
// process is known, or none is known yet: that has yet to be looked for.
func (w *view) listenerUnknown() bool {
	l, q := w.f.Evidence.Listener, w.f.Evidence.Queue
	if q == nil || !q.Listening || w.age(q.ListeningSince) >= listenerFound {
		return false
	}
	return l == nil || q.Inode != l.Inode && q.ListeningSince.After(l.At)
}

// notAccepting reports whether a connection waits to be accepted for longer than
// it should.
func (w *view) notAccepting() bool {
	if w.on(sigAcceptQueueDrains) || w.elsewhere() != nil || w.listenerUnknown() {
		return false
	}
	q := w.f.Evidence.Queue
	if p := w.f.Probe; p.waitsForSettings() && !w.probedBefore(q) {
		// A probe waits on for an answer; the queue says whether it still does. On a
		// busy node a probe may be late, and so may be the look at the queue.
		if q != nil && (!q.Listening || q.Length > 0) {
			return true
		}
		if (q == nil || q.At.Before(p.At)) && w.age(p.FailedSince) >= queueUnseenWaits {
			return true
		}
	}
	return q != nil && q.Listening && !q.WaitingSince.IsZero() && w.age(q.WaitingSince) >= queueWaits
}

// acceptsAfterStop is how long after it was last found stopped a runtime is given to
// accept what has been pending, and the accept queue to be looked at again.
const acceptsAfterStop = time.Second

// probeTimeout is the default of --probe-timeout.
const probeTimeout = time.Second

// processSeenSince reports whether the runtime's process has been looked at since
// then, or is not seen at all.
func (w *view) processSeenSince(t time.Time) bool {
	p := w.f.Evidence.Process
	return p == nil || !p.At.Before(t)
}

// waitsForSettings reports whether a probe was connected and has had no answer.
func (p *Probe) waitsForSettings() bool {
	return !p.FailedSince.IsZero() && p.Stage == StageSettings && p.Cause == CauseTimeout
}

// heldConnectionAnswers reports whether calls on the held connection are answered, and have
// been since the runtime stopped to accept.
func (w *view) heldConnectionAnswers() bool {
	if _, _, hanging := w.hang(); hanging || w.f.Relist.Failures > 0 || !w.on(sigListsAnsweredAtOnce) {
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
	if q := w.f.Evidence.Queue; q != nil && q.Listening && w.elsewhere() == nil {
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
