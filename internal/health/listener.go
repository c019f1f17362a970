package health

import (
	"time"

	"github.com/plegd/plegd/internal/facts"
)

const (
	// takeoverGracePeriod delays the report of another listener until its owner is usually known.
	takeoverGracePeriod = 2 * time.Second
	// listenerFound is how soon the process behind a new socket at the path is known, on a busy node too.
	listenerFound = 3 * time.Second
)

// elsewhere returns the process that a new connection reaches where that is not the
// process behind the held connection; nil where they are one, or where it is not known.
func (w *view) elsewhere() *facts.Listener {
	l, p := w.f.Evidence.Listener, w.process
	switch peer := w.f.Dial.PeerPID; {
	case l == nil || !p.Alive || !w.f.Dial.Up || l.PID == p.PID:
	case !l.At.After(w.f.Dial.At): // the held connection has been made to the path since
	case peer > 1 && peer != p.PID: // the process evidence is of an earlier connection
	case w.f.Evidence.Queue != nil && w.queue.Inode != l.Inode: // another socket is at the path since
	default:
		return l
	}
	return nil
}

// takenOver names another process at the path once the runtime has been seen alive beside it: not a restart.
func takenOver(w *view) (out lines) {
	l, p := w.elsewhere(), &w.f.Probe
	if l != nil && w.process.At.After(l.Since) {
		out.add("a new connection to %s reaches %s, for %s", w.f.Endpoint.Path, l.Name(), w.ago(l.Since))
		out.add("the connection held since before belongs to %s, which is alive", w.process.Name())
		out.when(!p.FailedSince.IsZero() && !p.At.Before(l.Since), "a fresh connection: %s", ProbeText(p))
		return append(out, w.lastAnswerText())
	}
	if w.hop == nil || p.Cause != facts.CauseProtocol {
		return nil
	}
	out.text(ProbeText(p)) // another program than the hop's listens at its socket
	if l := w.f.Evidence.Listener; l != nil {
		out.add("a new connection to %s reaches %s", w.hop.Socket, l.Name())
	}
	return out
}

// hidden reports whether the socket is there for the runtime and missing in plegd's own mounts.
func (w *view) hidden() bool { l := w.f.Evidence.Listener; return l != nil && l.OtherMounts }

// inheritor returns the process that listens at the path where it is younger than the socket and no runtime: the
// runtime is gone, and this one has inherited its listener. systemd starts socket-activated runtimes in the same way.
func (w *view) inheritor() *facts.Process {
	p, q := w.process, w.queue
	since := p.Start // the runtime may have answered while this one lived beside it
	if n := len(p.Restarts); n > 0 {
		since = p.Restarts[n-1]
	}
	if !p.Alive || q.ListeningSince.IsZero() || w.lastAnswer.After(since) ||
		!q.ListeningSince.Before(p.Start) || writesStacks[p.Comm] || p.Comm == "cri-dockerd" {
		return nil
	}
	return p
}

// lingering returns the runtime's process where it has served, lives and no longer listens: it hangs in its stop.
func (w *view) lingering() *facts.Process {
	p, r := w.process, &w.f.Relist
	if w.cause != facts.CauseMissing && w.cause != facts.CauseRefused || !p.Alive || w.queue.Listening {
		return nil
	}
	served := w.lastAnswer.After(p.Start) || w.age(p.Start) > youngFor
	if !served || r.Failures < 2 || p.At.Before(r.Last.Start) {
		return nil
	}
	return p
}

// listensUnlinked reports whether the path has no file although the runtime's process listens
// on a socket of that name. A connect that failed before the listener was seen proves nothing.
func (w *view) listensUnlinked() bool {
	p, l, failed := w.process, w.f.Evidence.Listener, w.f.Probe.FailedSince
	if w.cause != facts.CauseMissing || l == nil || w.hidden() || w.justListening() || !w.listensSince(failed) {
		return false
	}
	return !p.At.Before(failed) && !l.At.Before(failed) && p.Alive && w.queue.Inode == l.Inode && l.PID == p.PID
}

// listensSince reports whether a socket of the path's name has been seen to listen since a fresh connect first failed.
func (w *view) listensSince(failed time.Time) bool {
	return w.queue.Listening && w.f.Probe.Stage == facts.StageConnect && w.queue.At.After(failed)
}

// justListening reports whether no fresh connect has begun since the listener was first seen.
func (w *view) justListening() bool {
	q := w.queue
	return !q.ListeningSince.IsZero() && !w.f.Probe.At.After(q.ListeningSince)
}

// listenerUnknown reports whether the process of the socket at the path has yet to be looked for.
func (w *view) listenerUnknown() bool {
	l, q := w.f.Evidence.Listener, w.queue
	return w.age(q.ListeningSince) < listenerFound &&
		(l == nil || q.Inode != l.Inode && q.ListeningSince.After(l.At))
}

// probedBefore reports whether what the last probe met has gone since, or another socket listens since.
func (w *view) probedBefore() bool {
	since := w.queue.At
	if w.queue.Listening {
		since = w.queue.ListeningSince
	}
	return since.After(w.f.Probe.At)
}
