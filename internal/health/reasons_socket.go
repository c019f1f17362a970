package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	// queueWaits is how long the accept queue must hold a connection for the runtime to
	// count as not accepting; queueUnseenWaits is the same for a fresh connection while
	// the queue is not seen: two probes and more have had no answer by then.
	queueWaits       = 2 * time.Second
	queueUnseenWaits = 4 * time.Second
	// queueFalls is how long ago a queue must have fallen to count as being
	// worked off.
	queueFalls = time.Second
	// acceptsAgain is the time after the runtime last used up its descriptors within which
	// it accepts again: containerd retries after up to one second (grpc-go's Serve), and
	// the sample is up to one second old.
	acceptsAgain = 3 * time.Second
	// acceptsAfterStop is the grace period after the runtime was last found stopped: it
	// accepts the pending connections, and plegd reads the accept queue again.
	acceptsAfterStop = time.Second
)

// socketReasons speak of the runtime's socket and its accept queue.
var socketReasons = []Reason{
	{ID: AcceptFDExhausted, hops: true, Layer: LayerProcess, Severity: SeverityCritical, match: acceptNeedsDescriptor},
	{ID: RuntimeSocketTakenOver, hops: true, Layer: LayerSocket, Severity: SeverityCritical,
		match: (*view).takenOverEvidence, next: (*view).takenOverNext},
	{ID: RuntimeSocketMissing, hops: true, Layer: LayerSocket, Severity: SeverityCritical, match: socketMissing,
		next: func(w *view) string {
			if !w.hidden() {
				return w.endNext()
			}
			return fmt.Sprintf("Mount the directory of %s into plegd's pod: the runtime listens there, "+
				"and the kubelet is fine.", w.f.Endpoint.Path)
		}},
	{ID: RuntimeNotListening, hops: true, Layer: LayerSocket, Severity: SeverityCritical, match: notListening,
		next: (*view).endNext},
	{ID: RuntimeSocketPermissionDenied, Layer: LayerPlegd, Severity: SeverityCritical, match: func(w *view) []string {
		return w.connectFails(CausePermissionDenied)
	}},
	{ID: RuntimeSocketUnlinked, hops: true, Layer: LayerSocket, Severity: SeverityWarning,
		criticalWhile: (*view).relistSuffers, match: socketUnlinked},
	{ID: AcceptStalled, hops: true, Layer: LayerSocket, Severity: SeverityCritical, match: acceptStalled},
}

// connectFails is the evidence that no connection can be made for one of the causes, or
// no new one while the held connection is still answered; nil for neither.
func (w *view) connectFails(causes ...Cause) []string {
	switch {
	case slices.Contains(causes, w.cause):
		out := []string{"connect fails: " + w.detail}
		if p := w.lingering(); p != nil {
			out = append(out, p.name()+" is alive and does not listen")
		}
		return append(out, w.lastAnswerText())
	case slices.Contains(causes, w.fresh.Cause):
		return []string{"a fresh connect fails: " + w.fresh.Detail,
			"the connection held since before still answers: " + w.lastAnswerText()}
	}
	return nil
}

func socketMissing(w *view) (out []string) {
	switch {
	case w.f.Endpoint.Path == "":
		out = []string{"no runtime socket found"}
		for _, s := range w.f.Endpoint.Searched {
			out = append(out, "looked at "+s)
		}
		return out
	case w.cause != CauseMissing || w.listensUnlinked():
		return nil
	case w.hidden():
		out = []string{w.f.Evidence.Listener.name() +
			" listens there, and the path exists in its mounts: it is missing in plegd's own only"}
	}
	return append(out, w.connectFails(CauseMissing)...)
}

func notListening(w *view) []string {
	if p := w.inheritor(); p != nil && w.link != linkAnswers && w.link != linkUnsettled {
		return []string{p.name() + " keeps the listening socket, which is older than it: the runtime is gone"}
	}
	return w.connectFails(CauseRefused, CauseNotSocket)
}

func socketUnlinked(w *view) []string {
	c, failed := w.fresh.Cause, w.f.Probe.FailedSince
	foreign := w.hop == nil && (c == CauseProtocol || c == CauseUnimplemented)
	switch {
	case w.elsewhere() != nil:
		return nil
	case w.listensUnlinked():
		return append([]string{w.f.Evidence.Process.name() + " is alive and listens, but its socket's file is gone"},
			w.connectFails(CauseMissing)...)
	case foreign && w.age(failed) >= takeoverGracePeriod && !w.listenerChanged():
		return []string{fmt.Sprintf("something else listens at its path, for %s: a fresh connection: %s",
			Seconds(w.age(failed)), ProbeText(&w.fresh)), w.lastAnswerText()}
	case c == CauseMissing:
		return []string{"no socket at its path for " + Seconds(w.age(failed)), w.lastAnswerText()}
	}
	return nil
}

// acceptNeedsDescriptor is the evidence that the runtime has no descriptor, or has yet to
// notice that it has one again, while a connection waits or Status fails for it.
func acceptNeedsDescriptor(w *view) []string {
	if !w.noDescriptor() && !w.statusFailsForDescriptors() {
		return nil
	}
	out := append(w.acceptEvidence(), w.lastAnswerText())
	switch e := w.f.Status.LastErr; {
	case e != nil && w.statusFailsForDescriptors():
		out = append(out, fmt.Sprintf("status fails: %s: %s", e.Code, e.Message))
	case statusWillFail(w.f):
		out = append(out, fmt.Sprintf("Status of %s %s needs a descriptor: the next one fails", w.f.Runtime.Name,
			w.f.Runtime.Version))
	}
	if w.descriptorsFreed() {
		out = append(out, fmt.Sprintf("no descriptor was free until %s ago; it tries again within a second",
			Seconds(w.age(w.f.Evidence.Process.ExhaustedAt))))
	}
	return out
}

func acceptStalled(w *view) []string {
	p := w.f.Evidence.Process
	switch ran := w.ranAgain(); {
	case w.link == linkQueueFull:
		return append(w.connectFails(CauseQueueFull), w.acceptEvidence()...)
	case w.queueFull():
		return append(w.acceptEvidence(), w.lastAnswerText())
	case p != nil && (p.FDsExhausted() || w.descriptorsFreed()) || !w.heldConnectionAnswers() || !w.notAccepting():
		return nil
	case w.f.Probe.waitsForSettings() && !w.processSeenSince(w.f.Probe.FailedSince.Add(w.f.Config.probeTimeout())):
		return nil // it may only get no CPU
	case !ran.IsZero() && (w.now.Before(ran) || w.sampledAccept().Before(ran)):
		return nil // the samples of queue and dial are from before it ran again
	}
	out := w.acceptEvidence()
	if w.fresh.Stage == StageSettings {
		out = append(out, fmt.Sprintf("a fresh connection: %s for %s", ProbeText(&w.fresh),
			Seconds(w.age(w.fresh.FailedSince))))
	}
	return append(out, w.lastAnswerText())
}

// ranAgain returns when the runtime has had its time to accept what waits since it was
// last found stopped or frozen, zero for never.
func (w *view) ranAgain() (t time.Time) {
	if p := w.f.Evidence.Process; p != nil {
		t = p.StoppedAt
	}
	if c := w.f.Evidence.Cgroup; c != nil {
		t = laterOf(t, c.FrozenAt)
	}
	if t.IsZero() {
		return t
	}
	return t.Add(acceptsAfterStop)
}

// sampledAccept returns the time of the newest look at the accept queue, or of the newest
// dial where the queue is not seen.
func (w *view) sampledAccept() time.Time {
	if q := w.f.Evidence.Queue; q != nil {
		return q.At
	}
	return w.f.Probe.At
}

// queueFull reports whether the accept queue is full while the runtime's listener is at
// the path. What a probe met before the queue was last sampled may be over.
func (w *view) queueFull() bool {
	q := w.f.Evidence.Queue
	listening := q != nil && q.Listening
	full := listening && q.Length > q.Limit
	probed := w.fresh.Cause == CauseQueueFull && (!listening || !q.At.After(w.f.Probe.At))
	return w.elsewhere() == nil && (full || probed)
}

// descriptorsFreed reports whether the runtime had no descriptor until a moment ago.
func (w *view) descriptorsFreed() bool {
	p := w.f.Evidence.Process
	return p != nil && p.Alive && !p.FDsExhausted() && !p.ExhaustedAt.IsZero() && w.age(p.ExhaustedAt) <= acceptsAgain
}

// noDescriptor reports whether a connection waits while the runtime has no descriptor to
// accept it.
func (w *view) noDescriptor() bool {
	p, q := w.f.Evidence.Process, w.f.Evidence.Queue
	if p == nil || !p.FDsExhausted() && (!w.descriptorsFreed() || w.acceptQueueDrains()) {
		return false
	}
	waits := w.f.Probe.waitsForSettings()
	if q != nil {
		waits = q.Length > 0
	}
	return w.notAccepting() || waits && w.elsewhere() == nil
}

// acceptQueueDrains reports whether the accept queue is being emptied.
func (w *view) acceptQueueDrains() bool {
	q := w.f.Evidence.Queue
	return q != nil && q.Listening && !q.FellAt.IsZero() && w.age(q.FellAt) <= queueFalls && q.Length <= q.Limit
}

// notAccepting reports whether a connection waits to be accepted for longer than
// it should.
func (w *view) notAccepting() bool {
	if w.acceptQueueDrains() || w.elsewhere() != nil || w.listenerUnknown() {
		return false
	}
	q := w.f.Evidence.Queue
	if p := &w.f.Probe; p.waitsForSettings() && !w.probedBefore() {
		// The queue says whether the probe still waits. On a busy node both may be late.
		if q != nil && (!q.Listening || q.Length > 0) {
			return true
		}
		if (q == nil || q.At.Before(p.At)) && w.age(p.FailedSince) >= queueUnseenWaits {
			return true
		}
	}
	return q != nil && q.Listening && w.unanswered(q.WaitingSince, queueWaits)
}

// heldConnectionAnswers reports whether calls on the held connection are answered, and have
// been since the runtime stopped to accept.
func (w *view) heldConnectionAnswers() bool {
	if w.lists == listsHang || w.f.Relist.Failures > 0 || !w.listsAnsweredAtOnce() {
		return false
	}
	answered, q := w.callsAnswered(), w.f.Evidence.Queue
	since := func(t time.Time) bool { return !t.IsZero() && answered.After(t) }
	return since(w.f.Probe.FailedSince) || q != nil && since(q.WaitingSince)
}

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
