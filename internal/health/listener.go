package health

import (
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// otherListener returns the process that a new connection reaches if that is not the process behind the held
// connection; nil if they are one, or if it is not known.
func (s *signals) otherListener() *facts.Listener {
	l := s.f.Evidence.Listener
	p := s.process
	d := &s.f.Dial
	if l == nil || !p.Alive || !d.Up || l.PID == p.PID {
		return nil
	}
	madeSince := !l.At.After(d.At)                                     // the held connection has been made to the path since
	earlierPeer := d.PeerPID > 1 && d.PeerPID != p.PID                 // the process evidence is of an earlier connection
	newSocket := s.f.Evidence.Queue != nil && s.queue.Inode != l.Inode // another socket is at the path since
	if madeSince || earlierPeer || newSocket {
		return nil
	}
	return l
}

// takenOver names another process at the path once the runtime has been seen alive at the same time: not a restart.
func takenOver(s *signals) lines {
	l := s.elsewhere
	if l != nil && s.process.At.After(l.Since) {
		return s.takenOverEvidence(l)
	}
	if s.hop == nil || s.f.Probe.Cause != facts.CauseProtocol {
		return nil
	}
	out := lines{ProbeText(&s.f.Probe)} // another program than the hop's listens at its socket
	if l := s.f.Evidence.Listener; l != nil {
		out.add("a new connection to %s reaches %s", s.hop.Socket, l.Name())
	}
	return out
}

func (s *signals) takenOverEvidence(l *facts.Listener) (out lines) {
	p := &s.f.Probe
	out.add("a new connection to %s reaches %s, for %s", s.f.Endpoint.Path, l.Name(), s.ago(l.Since))
	out.add("the connection held since before belongs to %s, which is alive", s.process.Name())
	out.addIf(!p.FailedSince.IsZero() && !p.At.Before(l.Since), "a fresh connection: %s", ProbeText(p))
	return append(out, s.lastAnswerText())
}

// findInheritor returns the process that listens at the path if it is younger than the socket and no runtime: the
// runtime is gone, and this one has inherited its listener. systemd starts socket-activated runtimes in the same way.
func (s *signals) findInheritor() *facts.Process {
	p := s.process
	q := s.queue
	start := p.Start // the runtime may have answered while this one lived at the same time
	if n := len(p.Restarts); n > 0 {
		start = p.Restarts[n-1]
	}
	younger := !q.ListeningSince.IsZero() && q.ListeningSince.Before(p.Start)
	if !p.Alive || !younger || s.lastAnswer.After(start) || runtimePrograms[p.Comm] {
		return nil
	}
	return p
}

// runtimePrograms are the programs that serve CRI calls, or a hop behind them.
var runtimePrograms = map[string]bool{"containerd": true, "crio": true, "dockerd": true, "cri-dockerd": true}

// findLingering returns the runtime's process if it has served, lives and no longer listens: it hangs in its stop.
func (s *signals) findLingering() *facts.Process {
	p := s.process
	r := &s.f.Relist
	absent := s.cause == facts.CauseMissing || s.cause == facts.CauseRefused
	if !absent || !p.Alive || s.queue.Listening {
		return nil
	}
	served := s.lastAnswer.After(p.Start) || s.age(p.Start) > youngFor
	if !served || r.Failures < 2 || p.At.Before(r.Last.Start) {
		return nil
	}
	return p
}

// listensWithoutFile reports whether the path has no file although the runtime's process listens on a socket of that
// name. A connect that failed before the listener was seen proves nothing.
func (s *signals) listensWithoutFile() bool {
	p := s.process
	l := s.f.Evidence.Listener
	failed := s.f.Probe.FailedSince
	if s.cause != facts.CauseMissing || l == nil || s.hidden || s.justListening || !s.listensSince(failed) {
		return false
	}
	return !p.At.Before(failed) && !l.At.Before(failed) && p.Alive && s.queue.Inode == l.Inode && l.PID == p.PID
}

// listensSince reports whether a socket of the path's name has been seen to listen since a fresh connect first failed.
func (s *signals) listensSince(failed time.Time) bool {
	return s.queue.Listening && s.f.Probe.Stage == facts.StageConnect && s.queue.At.After(failed)
}

// listenerNotFound reports whether the process of the socket at the path has yet to be looked for.
func (s *signals) listenerNotFound() bool {
	l := s.f.Evidence.Listener
	q := s.queue
	return s.age(q.ListeningSince) < listenerFound &&
		(l == nil || q.Inode != l.Inode && q.ListeningSince.After(l.At))
}

// probedEarlier reports whether what the last probe met has gone since, or another socket listens since.
func (s *signals) probedEarlier() bool {
	changed := s.queue.At
	if s.queue.Listening {
		changed = s.queue.ListeningSince
	}
	return changed.After(s.f.Probe.At)
}
