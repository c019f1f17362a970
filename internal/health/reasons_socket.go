package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// connectFails is the evidence that no connection, or no new one, can be made for one of the causes; else nil.
func (s *signals) connectFails(causes ...facts.Cause) (out lines) {
	switch {
	case slices.Contains(causes, s.cause):
		out.add("connect fails: %s", s.detail)
		if p := s.lingering; p != nil {
			out.add("%s is alive and does not listen", p.Name())
		}
		return append(out, s.lastAnswerText())
	case slices.Contains(causes, s.freshProbe.Cause):
		out.add("a fresh connect fails: %s", s.freshProbe.Detail)
		out.add("the connection held since before still answers: %s", s.lastAnswerText())
	}
	return out
}

func permissionDenied(s *signals) lines { return s.connectFails(facts.CausePermissionDenied) }

func socketMissing(s *signals) (out lines) {
	switch {
	case s.f.Endpoint.Path == "":
		out.add("no runtime socket found")
		for _, searched := range s.f.Endpoint.Searched {
			out.add("looked at %s", searched)
		}
		return out
	case s.cause != facts.CauseMissing:
		return nil
	case s.hidden:
		out.add("%s listens there, and the path exists in its mounts: it is missing in plegd's own only",
			s.f.Evidence.Listener.Name())
	}
	return s.ended(append(out, s.connectFails(facts.CauseMissing)...))
}

// ended adds to the evidence that nobody listens what the runtime may have ended of, and what its next start waits for.
func (s *signals) ended(evidence lines) lines {
	if evidence == nil || s.process.Alive {
		return evidence
	}
	first := s.process.Preparing
	if first != nil {
		evidence.add("pid %d (%s) has run for %s in the runtime's cgroup, before its next start", first.PID, first.Comm, s.ago(first.Since))
	}
	return append(evidence, s.memoryKills()...)
}

func notListening(s *signals) lines {
	if p := s.inheritor; p != nil && s.link != linkAnswers && s.link != linkUnsettled {
		return line("%s keeps the listening socket, which is older than it: the runtime is gone", p.Name())
	}
	return s.ended(s.connectFails(facts.CauseRefused, facts.CauseNotSocket))
}

func socketUnlinked(s *signals) lines {
	cause := s.freshProbe.Cause
	failed := s.f.Probe.FailedSince
	foreign := s.hop == nil && (cause == facts.CauseProtocol || cause == facts.CauseUnimplemented)
	switch {
	case s.elsewhere != nil, s.pathHidden(): // RuntimeSocketTakenOver, RuntimeStorageFull
		return nil
	case s.listensWithoutFile():
		return append(line("%s is alive and listens, but its socket's file is gone", s.process.Name()),
			s.connectFails(facts.CauseMissing)...)
	case foreign && s.age(failed) >= takeoverGracePeriod && !s.pathChanged():
		return append(line("something else listens at its path, for %s: a fresh connection: %s", s.ago(failed),
			ProbeText(&s.freshProbe)), s.lastAnswerText())
	case cause == facts.CauseMissing:
		return append(line("no socket at its path for %s", s.ago(failed)), s.lastAnswerText())
	}
	return nil
}

// pathHidden reports whether the path of the socket lies in a directory of the runtime that a mount hides: a restart would
// make the socket, and lose what runs.
func (s *signals) pathHidden() bool {
	if s.hop != nil || s.freshProbe.Cause != facts.CauseMissing {
		return false
	}
	storage := cmp.Or(s.f.Evidence.Storage, &facts.Storage{})
	return slices.ContainsFunc(storage.FileSystems, func(f facts.FileSystem) bool {
		return f.Lost && strings.HasPrefix(s.f.Endpoint.Path, f.Directory+"/")
	})
}

// pathChanged reports whether another socket or process is at the path than the last probe met.
func (s *signals) pathChanged() bool {
	l := s.f.Evidence.Listener
	if s.probeOutdated || l == nil {
		return s.probeOutdated
	}
	return s.f.Evidence.Queue != nil && s.queue.Inode != l.Inode || l.Since.After(s.f.Probe.At)
}

// acceptNeedsDescriptor is the evidence that the runtime has no descriptor, or has yet to
// notice that it has one again, while a connection waits or Status fails for it.
func acceptNeedsDescriptor(s *signals) lines {
	if !s.noDescriptor && !s.statusLacksDescriptor {
		return nil
	}
	out := append(s.acceptEvidence(), s.lastAnswerText())
	if s.statusLacksDescriptor {
		e := s.f.Status.LastErr
		out.add("status fails: %s: %s", e.Code, e.Message)
	} else if s.statusWillFail {
		out.add("Status of %s %s needs a descriptor: the next one fails", s.f.Runtime.Name, s.f.Runtime.Version)
	}
	out.addIf(s.descriptorsFreed, "no descriptor was free until %s ago; it tries again within a second",
		s.ago(s.process.ExhaustedAt))
	return out
}

func acceptStalled(s *signals) lines {
	queue := s.acceptEvidence()
	if (s.link == linkQueueFull || s.queueFull) && !s.descriptorsCounted() {
		return nil
	}
	if s.link == linkQueueFull {
		return append(s.connectFails(facts.CauseQueueFull), queue...)
	}
	if s.queueFull {
		return append(queue, s.lastAnswerText())
	}
	if s.noDescriptor || !s.heldConnectionAnswers() || !s.notAccepting || !s.acceptSampled() {
		return nil
	}
	queue.addIf(s.freshProbe.Stage == facts.StageSettings, "a fresh connection: %s for %s", ProbeText(&s.freshProbe),
		s.ago(s.freshProbe.FailedSince))
	return append(queue, s.lastAnswerText())
}

// descriptorsCounted reports whether the process was seen since connections wait: it may lack a descriptor for them. A
// busy node shows it late.
func (s *signals) descriptorsCounted() bool {
	waiting := facts.Earliest(s.queue.WaitingSince, s.f.Probe.FailedSince)
	return s.processSeenSince(waiting) || s.age(waiting) >= queueWaits
}

// acceptSampled reports whether the samples are of a process that runs: it was seen since the fresh dial failed, or it
// may only get no CPU, and queue and dial were sampled after it last ran again.
func (s *signals) acceptSampled() bool {
	sampled := s.f.Probe.At
	if s.f.Evidence.Queue != nil {
		sampled = s.queue.At
	}
	resumed := facts.Later(s.process.StoppedAt, s.cgroup.FrozenAt).Add(acceptsAfterStop)
	return s.processSeenSince(s.f.Probe.FailedSince.Add(s.f.Config.FreshDialTimeout())) && !sampled.Before(resumed)
}

// isQueueFull reports whether the runtime's accept queue is full; what an older probe met may be over.
func (s *signals) isQueueFull() bool {
	q := s.queue
	full := q.Length > q.Limit
	probed := s.freshProbe.Cause == facts.CauseQueueFull && (!q.Listening || !q.At.After(s.f.Probe.At))
	return s.elsewhere == nil && (full || probed)
}

// waitsForDescriptor reports whether a connection waits while the runtime has no descriptor to accept it.
func (s *signals) waitsForDescriptor() bool {
	if !s.process.FDsExhausted() && (!s.descriptorsFreed || s.queueDrains) {
		return false
	}
	waits := s.queue.Length > 0 || s.f.Evidence.Queue == nil && s.f.Probe.WaitsForSettings()
	return s.notAccepting || waits && s.elsewhere == nil
}

// connectionWaits reports whether a connection waits to be accepted for longer than it should.
func (s *signals) connectionWaits() bool {
	if s.queueDrains || s.elsewhere != nil || s.listenerNotFound() {
		return false
	}
	return s.probeWaits() || s.unanswered(s.queue.WaitingSince, queueWaits)
}

// probeWaits reports whether the fresh connection waits. The queue shows whether it still does; on a busy node both
// samples may be late.
func (s *signals) probeWaits() bool {
	p := &s.f.Probe
	q := s.queue
	if !p.WaitsForSettings() || s.probeOutdated {
		return false
	}
	queued := s.f.Evidence.Queue != nil && (!q.Listening || q.Length > 0)
	late := q.At.Before(p.At) && s.age(p.FailedSince) >= queueUnseenWaits
	return queued || late
}

// heldConnectionAnswers reports whether calls on the held connection are answered while nothing is accepted.
func (s *signals) heldConnectionAnswers() bool {
	answeredSince := func(t time.Time) bool { return !t.IsZero() && s.callsAnswered.After(t) }
	return s.lists != listsHang && s.f.Relist.Failures == 0 && s.listsPrompt &&
		(answeredSince(s.f.Probe.FailedSince) || answeredSince(s.queue.WaitingSince))
}

// processSeenSince reports whether the runtime's process has been looked at since then, or is not seen at all.
func (s *signals) processSeenSince(t time.Time) bool {
	return s.f.Evidence.Process == nil || !s.process.At.Before(t)
}

// acceptEvidence are the numbers of the queue and of the process behind it.
func (s *signals) acceptEvidence() (out lines) {
	p := s.process
	q := s.queue
	out.addIf(q.Listening && s.elsewhere == nil, "accept queue %d of %d", q.Length, q.Limit)
	if p.Alive {
		out.addIf(p.OpenFDs >= 0 && p.MaxFDs > 0, "fds %d of %d", p.OpenFDs, p.MaxFDs)
		out.text(threadsText(p))
	}
	return out
}

// endNext is the step where another start of the runtime fails: its path is taken, or a process keeps its socket.
func (s *signals) endNext() string {
	probe := s.freshProbe.Cause
	path := s.f.Endpoint.Path
	switch {
	case s.hidden:
		return fmt.Sprintf("Mount the directory of %s into plegd's pod: the runtime listens there, "+
			"and the kubelet is fine.", path)
	case probe == facts.CauseNotSocket || probe == facts.CauseRefused: // the held connection is still answered
		return fmt.Sprintf("Remove what stands at %s (`stat %s`): the runtime runs, "+
			"and makes its socket again when it is restarted after that.", path, path)
	case s.cause == facts.CauseNotSocket:
		return fmt.Sprintf("Remove what stands at %s (`stat %s`), then start the runtime: "+
			"it cannot make its socket before.", path, path)
	case s.inheritor != nil:
		return fmt.Sprintf("End %s, which keeps the runtime's listening socket, then start the runtime.", s.inheritor.Name())
	case s.lingering != nil:
		return fmt.Sprintf("See what %s waits for: it has closed its socket and does not end. `kill -9 %d` ends it, "+
			"containers are kept; then start the runtime.", s.lingering.Name(), s.lingering.PID)
	}
	return s.killedNext((*signals).loggedEnd)
}

// descriptorNext is the step where a stuck shim is among those that hold connections of the runtime: a restart would
// lose its containers.
func (s *signals) descriptorNext() string {
	c := s.f.Evidence.Children
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
