package health

import (
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

const (
	// queueWaits is how long the accept queue must hold a connection for the runtime to
	// count as not accepting; queueUnseenWaits is the same for a fresh connection while
	// the queue is not seen: two probes and more have had no answer by then.
	queueWaits       = 2 * time.Second
	queueUnseenWaits = 4 * time.Second
	queueFalls       = time.Second // how long ago a queue must have fallen to count as being worked off
	// acceptsAgain is the time after the runtime last used up its descriptors within which it accepts again:
	// containerd retries after up to one second (grpc-go's Serve), and the sample is up to one second old.
	acceptsAgain = 3 * time.Second
	// acceptsAfterStop is the grace period after a stop for the runtime to accept and for the queue to be read.
	acceptsAfterStop = time.Second
)

// connectFails is the evidence that no connection, or no new one, can be made for one of the causes; else nil.
func (w *view) connectFails(causes ...facts.Cause) (out lines) {
	switch {
	case slices.Contains(causes, w.cause):
		out.add("connect fails: %s", w.detail)
		if p := w.lingering(); p != nil {
			out.add("%s is alive and does not listen", p.Name())
		}
		return append(out, w.lastAnswerText())
	case slices.Contains(causes, w.fresh.Cause):
		out.add("a fresh connect fails: %s", w.fresh.Detail)
		out.add("the connection held since before still answers: %s", w.lastAnswerText())
	}
	return out
}

func permissionDenied(w *view) lines { return w.connectFails(facts.CausePermissionDenied) }

func socketMissing(w *view) (out lines) {
	switch {
	case w.f.Endpoint.Path == "":
		out.add("no runtime socket found")
		for _, s := range w.f.Endpoint.Searched {
			out.add("looked at %s", s)
		}
		return out
	case w.cause != facts.CauseMissing || w.listensUnlinked():
		return nil
	case w.hidden():
		out.add("%s listens there, and the path exists in its mounts: it is missing in plegd's own only",
			w.f.Evidence.Listener.Name())
	}
	return append(out, w.connectFails(facts.CauseMissing)...)
}

func notListening(w *view) lines {
	if p := w.inheritor(); p != nil && w.link != linkAnswers && w.link != linkUnsettled {
		return line("%s keeps the listening socket, which is older than it: the runtime is gone", p.Name())
	}
	return w.connectFails(facts.CauseRefused, facts.CauseNotSocket)
}

func socketUnlinked(w *view) lines {
	c, failed := w.fresh.Cause, w.f.Probe.FailedSince
	foreign := w.hop == nil && (c == facts.CauseProtocol || c == facts.CauseUnimplemented)
	l := w.f.Evidence.Listener
	changed := w.probedBefore() || l != nil && // another socket or process is at the path than the last probe met
		(w.f.Evidence.Queue != nil && w.queue.Inode != l.Inode || l.Since.After(w.f.Probe.At))
	switch {
	case w.elsewhere() != nil:
	case w.listensUnlinked():
		return append(line("%s is alive and listens, but its socket's file is gone", w.process.Name()),
			w.connectFails(facts.CauseMissing)...)
	case foreign && w.age(failed) >= takeoverGracePeriod && !changed:
		return append(line("something else listens at its path, for %s: a fresh connection: %s", w.ago(failed),
			ProbeText(&w.fresh)), w.lastAnswerText())
	case c == facts.CauseMissing:
		return append(line("no socket at its path for %s", w.ago(failed)), w.lastAnswerText())
	}
	return nil
}

// acceptNeedsDescriptor is the evidence that the runtime has no descriptor, or has yet to
// notice that it has one again, while a connection waits or Status fails for it.
func acceptNeedsDescriptor(w *view) lines {
	if !w.noDescriptor() && !w.statusFailsForDescriptors() {
		return nil
	}
	out := append(w.acceptEvidence(), w.lastAnswerText())
	switch e := w.f.Status.LastErr; {
	case w.statusFailsForDescriptors():
		out.add("status fails: %s: %s", e.Code, e.Message)
	case w.statusWillFail():
		out.add("Status of %s %s needs a descriptor: the next one fails", w.f.Runtime.Name, w.f.Runtime.Version)
	}
	out.when(w.descriptorsFreed(), "no descriptor was free until %s ago; it tries again within a second",
		w.ago(w.process.ExhaustedAt))
	return out
}

func acceptStalled(w *view) lines {
	p, queue, sampled := w.process, w.acceptEvidence(), w.f.Probe.At
	if w.f.Evidence.Queue != nil {
		sampled = w.queue.At
	}
	switch ran := facts.Later(p.StoppedAt, w.cgroup.FrozenAt).Add(acceptsAfterStop); {
	case w.link == linkQueueFull:
		return append(w.connectFails(facts.CauseQueueFull), queue...)
	case w.queueFull():
		return append(queue, w.lastAnswerText())
	case w.noDescriptor() || !w.heldConnectionAnswers() || !w.notAccepting():
		return nil
	case !w.processSeenSince(w.f.Probe.FailedSince.Add(w.f.Config.FreshDialTimeout())):
		return nil // it may only get no CPU
	case sampled.Before(ran):
		return nil // the samples of queue and dial are from before it ran again
	}
	queue.when(w.fresh.Stage == facts.StageSettings, "a fresh connection: %s for %s", ProbeText(&w.fresh),
		w.ago(w.fresh.FailedSince))
	return append(queue, w.lastAnswerText())
}

// queueFull reports whether the runtime's accept queue is full; what an older probe met may be over.
func (w *view) queueFull() bool {
	q := w.queue
	full := q.Length > q.Limit
	probed := w.fresh.Cause == facts.CauseQueueFull && (!q.Listening || !q.At.After(w.f.Probe.At))
	return w.elsewhere() == nil && (full || probed)
}

// descriptorsFreed reports whether the runtime had no descriptor until a moment ago.
func (w *view) descriptorsFreed() bool {
	p := w.process
	return p.Alive && !p.FDsExhausted() && w.age(p.ExhaustedAt) <= acceptsAgain
}

// noDescriptor reports whether a connection waits while the runtime has no descriptor to accept it.
func (w *view) noDescriptor() bool {
	if !w.process.FDsExhausted() && (!w.descriptorsFreed() || w.acceptQueueDrains()) {
		return false
	}
	waits := w.queue.Length > 0 || w.f.Evidence.Queue == nil && w.f.Probe.WaitsForSettings()
	return w.notAccepting() || waits && w.elsewhere() == nil
}

// acceptQueueDrains reports whether the accept queue is being emptied.
func (w *view) acceptQueueDrains() bool {
	q := w.queue
	return w.age(q.FellAt) <= queueFalls && q.Length <= q.Limit
}

// notAccepting reports whether a connection waits to be accepted for longer than it should.
func (w *view) notAccepting() bool {
	if w.acceptQueueDrains() || w.elsewhere() != nil || w.listenerUnknown() {
		return false
	}
	q, unseen := w.queue, w.f.Evidence.Queue == nil
	if p := &w.f.Probe; p.WaitsForSettings() && !w.probedBefore() {
		// The queue says whether the probe still waits. On a busy node both may be late.
		late := q.At.Before(p.At) && w.age(p.FailedSince) >= queueUnseenWaits
		if !unseen && (!q.Listening || q.Length > 0) || late {
			return true
		}
	}
	return w.unanswered(q.WaitingSince, queueWaits)
}

// heldConnectionAnswers reports whether calls on the held connection are answered while nothing is accepted.
func (w *view) heldConnectionAnswers() bool {
	since := func(t time.Time) bool { return !t.IsZero() && w.callsAnswered.After(t) }
	return w.lists != listsHang && w.f.Relist.Failures == 0 && w.listsAnsweredAtOnce() &&
		(since(w.f.Probe.FailedSince) || since(w.queue.WaitingSince))
}

// processSeenSince reports whether the runtime's process has been looked at since then, or is not seen at all.
func (w *view) processSeenSince(t time.Time) bool {
	return w.f.Evidence.Process == nil || !w.process.At.Before(t)
}

// acceptEvidence are the numbers of the queue and of the process behind it.
func (w *view) acceptEvidence() (out lines) {
	p, q := w.process, w.queue
	out.when(q.Listening && w.elsewhere() == nil, "accept queue %d of %d", q.Length, q.Limit)
	if p.Alive {
		out.when(p.OpenFDs >= 0 && p.MaxFDs > 0, "fds %d of %d", p.OpenFDs, p.MaxFDs)
		out.text(threadsText(p))
	}
	return out
}

// endNext is the step where another start of the runtime fails: its path is taken, or a process keeps its socket.
func (w *view) endNext() string {
	fresh, path := w.fresh.Cause, w.f.Endpoint.Path
	switch {
	case w.hidden():
		return fmt.Sprintf("Mount the directory of %s into plegd's pod: the runtime listens there, "+
			"and the kubelet is fine.", path)
	case fresh == facts.CauseNotSocket || fresh == facts.CauseRefused: // the held connection is still answered
		return fmt.Sprintf("Remove what stands at %s (`stat %s`): the runtime runs, "+
			"and makes its socket again when it is restarted after that.", path, path)
	case w.cause == facts.CauseNotSocket:
		return fmt.Sprintf("Remove what stands at %s (`stat %s`), then start the runtime: "+
			"it cannot make its socket before.", path, path)
	}
	if p := w.inheritor(); p != nil {
		return fmt.Sprintf("End %s, which keeps the runtime's listening socket, then start the runtime.", p.Name())
	}
	if p := w.lingering(); p != nil {
		return fmt.Sprintf("See what %s waits for: it has closed its socket and does not end. `kill -9 %d` ends it, "+
			"containers are kept; then start the runtime.", p.Name(), p.PID)
	}
	return ""
}

// descriptorNext is the step where a stuck shim is among those that hold connections of the runtime: a restart would
// lose its containers.
func (w *view) descriptorNext() string {
	c := w.f.Evidence.Children
	if c == nil || len(c.Stuck) == 0 {
		return ""
	}
	shim := &c.Stuck[0]
	name := facts.ProcessName(shim.PID, shim.Comm, "", "")
	if shim.State == "T" {
		return fmt.Sprintf("Continue %s first (`kill -CONT %d`): do not restart the runtime while it is stopped. "+
			"Then raise LimitNOFILE, if descriptors are still used up.", name, shim.PID)
	}
	return fmt.Sprintf("See what %s waits for, and do not restart the runtime before that ends. "+
		"Then raise LimitNOFILE, if descriptors are still used up.", name)
}
