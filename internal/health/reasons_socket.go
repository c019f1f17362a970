package health

import (
	"cmp"
	"fmt"
	"time"
)

// socketReasons speak of the runtime's socket and its accept queue.
var socketReasons = []Reason{
	{
		ID: AcceptFDExhausted, hops: true, Layer: LayerProcess, Severity: SeverityCritical,
		match: func(w *view) []string {
			if !w.acceptNeedsDescriptor() && !w.statusFailsForDescriptors() {
				return nil
			}
			out := append(w.acceptEvidence(), w.heldEvidence())
			switch e := w.f.Status.LastErr; {
			case e != nil && w.statusFailsForDescriptors():
				out = append(out, fmt.Sprintf("status fails: %s: %s", e.Code, e.Message))
			case statusWillFail(w.f):
				out = append(out, fmt.Sprintf("Status of %s %s needs a descriptor: the next one fails", w.f.Runtime.Name,
					w.f.Runtime.Version))
			}
			if w.descriptorsFreed() {
				out = append(out, fmt.Sprintf("no descriptor was free until %s ago; it tries again within a second",
					short(w.age(w.f.Evidence.Process.ExhaustedAt))))
			}
			return out
		},
	},
	{
		ID: RuntimeSocketTakenOver, hops: true, Layer: LayerSocket, Severity: SeverityCritical,
		match: (*view).takenOverEvidence, next: (*view).takenOverNext,
	},
	{
		ID: RuntimeSocketMissing, hops: true, Layer: LayerSocket, Severity: SeverityCritical,
		match: func(w *view) []string {
			if w.f.Endpoint.Path == "" {
				out := []string{"no runtime socket found"}
				for _, s := range w.f.Endpoint.Searched {
					out = append(out, "looked at "+s)
				}
				return out
			}
			if c, detail := w.connect(); c == CauseMissing && !w.listensUnlinked() {
				return append(w.hiddenEvidence(), w.connectEvidence(detail)...)
			}
			return nil
		},
		next: func(w *view) string {
			if w.hiddenEvidence() == nil {
				return w.endNext()
			}
			return fmt.Sprintf("Mount the directory of %s into plegd's pod: the runtime listens there, "+
				"and the kubelet is fine.", w.f.Endpoint.Path)
		},
	},
	{
		ID: RuntimeNotListening, hops: true, Layer: LayerSocket, Severity: SeverityCritical,
		match: func(w *view) []string {
			if p := w.inheritor(); p != nil && w.nothingAnswers() {
				return []string{fmt.Sprintf("%s keeps the listening socket, which is older than it: the runtime is gone", p.name())}
			}
			if c, detail := w.connect(); c == CauseRefused || c == CauseNotSocket {
				return w.connectEvidence(detail)
			}
			if _, c, detail := w.freshDialFailure(); c == CauseRefused || c == CauseNotSocket {
				return []string{"a fresh connect fails: " + detail,
					"the connection held since before still answers: another process runs behind it"}
			}
			return nil
		},
		next: (*view).endNext,
	},
	{
		ID: RuntimeSocketPermissionDenied, Layer: LayerPlegd, Severity: SeverityCritical,
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
		ID: RuntimeSocketUnlinked, hops: true, Layer: LayerSocket, Severity: SeverityWarning,
		criticalWhile: (*view).relistSuffers,
		match: func(w *view) []string {
			_, c, _ := w.freshDialFailure()
			foreign := w.hop == nil && (c == CauseProtocol || c == CauseUnimplemented)
			switch {
			case w.elsewhere() != nil:
				return nil
			case w.listensUnlinked():
				_, detail := w.connect()
				return append([]string{w.f.Evidence.Process.name() + " is alive and listens, but its socket's file is gone"},
					w.connectEvidence(detail)...)
			case foreign && w.age(w.f.Probe.FailedSince) >= strangerAfter && !w.listenerChanged():
				return []string{
					fmt.Sprintf("something else listens at its path, for %s: a fresh connection: %s",
						short(w.age(w.f.Probe.FailedSince)), ProbeText(&w.f.Probe)),
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
		ID: AcceptStalled, hops: true, Layer: LayerSocket, Severity: SeverityCritical,
		match: acceptStalled,
	},
}

func acceptStalled(w *view) []string {
	if out := w.queueFull(); out != nil {
		return out
	}
	if w.descriptorsExhausted() || w.descriptorsFreed() || !w.heldConnectionAnswers() || !w.notAccepting() {
		return nil
	}
	if p := w.f.Probe; p.waitsForSettings() && !w.processSeenSince(p.FailedSince.Add(w.f.Config.probeTimeout())) {
		return nil // it may only get no CPU
	}
	if p := w.f.Evidence.Process; p != nil && !p.StoppedAt.IsZero() && w.age(p.StoppedAt) < acceptsAfterStop {
		return nil // the queue is yet to be looked at since it runs again
	}
	out := w.acceptEvidence()
	if stage, c, _ := w.freshDialFailure(); stage == StageSettings && c != CauseNone {
		out = append(out, fmt.Sprintf("a fresh connection: %s for %s", ProbeText(&w.f.Probe),
			short(w.age(w.f.Probe.FailedSince))))
	}
	return append(out, w.heldEvidence())
}

// queueFull is the evidence that the accept queue is full, nil where it is not.
func (w *view) queueFull() []string {
	if c, detail := w.connect(); c == CauseQueueFull {
		return append(w.connectEvidence(detail), w.acceptEvidence()...)
	}
	q := w.f.Evidence.Queue
	full := q != nil && q.Listening && q.Length > q.Limit
	_, c, _ := w.freshDialFailure()
	// What a probe met before the queue was last sampled may be over.
	sampledSince := q != nil && q.Listening && q.At.After(w.f.Probe.At)
	if w.elsewhere() != nil || !full && (c != CauseQueueFull || sampledSince) {
		return nil
	}
	return append(w.acceptEvidence(), w.heldEvidence())
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

// endNext is the step where another start of the runtime would fail: something else
// stands at its path, or a process that no longer serves still lives. "" elsewhere.
func (w *view) endNext() string {
	cause, _ := w.connect()
	_, fresh, _ := w.freshDialFailure() // the held connection is still answered
	path := w.f.Endpoint.Path
	switch {
	case fresh == CauseNotSocket || fresh == CauseRefused:
		return fmt.Sprintf("Remove what stands at %s (`stat %s`): the runtime runs, "+
			"and makes its socket again when it is restarted after that.", path, path)
	case cause == CauseNotSocket:
		return fmt.Sprintf("Remove what stands at %s (`stat %s`), then start the runtime: "+
			"it cannot make its socket before.", path, path)
	}
	if p := w.inheritor(); p != nil {
		return fmt.Sprintf("End %s, which keeps the runtime's listening socket, then start the runtime.", p.name())
	}
	if p := w.lingering(); p != nil {
		return fmt.Sprintf("See what %s waits for: it has closed its socket and does not end. `kill -9 %d` ends it, "+
			"containers are kept; then start the runtime.", p.name(), p.PID)
	}
	return ""
}

// inheritor returns the process that listens at the path where it is younger than the
// socket and no runtime: the runtime is gone, and this one has inherited its listener.
// systemd starts socket-activated runtimes in the same way.
func (w *view) inheritor() *Process {
	p, q := w.f.Evidence.Process, w.f.Evidence.Queue
	if p == nil || q == nil || !p.Alive || !q.Listening || q.ListeningSince.IsZero() || w.lastAnswer.After(p.Start) {
		return nil
	}
	if !q.ListeningSince.Before(p.Start) || writesStacks[p.Comm] || p.Comm == "cri-dockerd" {
		return nil
	}
	return p
}

// lingering returns the runtime's process where it has served, lives and no longer
// listens: it hangs in its stop.
func (w *view) lingering() *Process {
	p, q, r := w.f.Evidence.Process, w.f.Evidence.Queue, &w.f.Relist
	cause, _ := w.connect()
	if cause != CauseMissing && cause != CauseRefused || p == nil || !p.Alive || q != nil && q.Listening {
		return nil
	}
	served := w.lastAnswer.After(p.Start) || w.age(p.Start) > youngFor
	if !served || r.Failures < 2 || p.At.Before(r.Last.Start) {
		return nil
	}
	return p
}

// connectEvidence returns the reason why no connection succeeds, and the last answer.
func (w *view) connectEvidence(detail string) []string {
	out := []string{"connect fails: " + detail}
	if p := w.lingering(); p != nil {
		out = append(out, p.name()+" is alive and does not listen")
	}
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
	if l.OtherMounts || w.justListening() {
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

// strangerAfter delays the report of another listener at the path until its owner is
// usually known (RuntimeSocketTakenOver).
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
	// acceptsAgain is the time after the runtime last used up its descriptors within which
	// it accepts again: containerd retries after up to one second (grpc-go's Serve), and
	// the sample is up to one second old.
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
	if !w.descriptorsExhausted() && (!w.descriptorsFreed() || w.acceptQueueDrains()) {
		return false
	}
	waits := w.f.Probe.waitsForSettings()
	if q := w.f.Evidence.Queue; q != nil {
		waits = q.Length > 0
	}
	return w.notAccepting() || waits && w.elsewhere() == nil
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
	if w.acceptQueueDrains() || w.elsewhere() != nil || w.listenerUnknown() {
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

// acceptsAfterStop is the grace period after the runtime was last found stopped: it
// accepts the pending connections, and plegd reads the accept queue again.
const acceptsAfterStop = time.Second

// probeTimeout is the limit of a stage of a fresh dial.
func (c *Config) probeTimeout() time.Duration { return cmp.Or(c.ProbeTimeout, time.Second) }

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
	if _, _, hanging := w.hang(); hanging || w.f.Relist.Failures > 0 || !w.listsAnsweredAtOnce() {
		return false
	}
	answered := w.callsAnswered()
	if p := w.f.Probe; !p.FailedSince.IsZero() && answered.After(p.FailedSince) {
		return true
	}
	q := w.f.Evidence.Queue
	return q != nil && !q.WaitingSince.IsZero() && answered.After(q.WaitingSince)
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
	if w.hop != nil {
		return fmt.Sprintf("the runtime last answered a call, on connections made before, %s ago",
			short(w.age(w.callsAnswered())))
	}
	if w.lastAnswer.IsZero() {
		return "nothing has been answered since plegd started"
	}
	return fmt.Sprintf("the connection held since before was answered %s ago", short(w.age(w.lastAnswer)))
}
