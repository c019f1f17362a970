package health

import (
	"fmt"
	"time"
)

const (
	// takeoverGracePeriod delays the report of another listener at the path until its
	// owner is usually known (RuntimeSocketTakenOver).
	takeoverGracePeriod = 2 * time.Second
	// listenerFound is how soon the process behind a new socket at the path is
	// known, on a busy node too.
	listenerFound = 3 * time.Second
)

// elsewhere returns the process that a new connection reaches where that is not
// the process behind the held connection; nil where they are one, or where it is
// not known.
func (w *view) elsewhere() *Listener {
	l, p, q := w.f.Evidence.Listener, w.f.Evidence.Process, w.f.Evidence.Queue
	if l == nil || p == nil || !p.Alive || !w.f.Dial.Up || l.PID == p.PID || l.Related {
		return nil
	}
	if !l.At.After(w.f.Dial.At) {
		return nil // the held connection has been made to the path since
	}
	if peer := w.f.Dial.PeerPID; peer > 1 && peer != p.PID {
		return nil // the process evidence is of an earlier connection
	}
	if q != nil && q.Inode != l.Inode {
		return nil // another socket is at the path since
	}
	return l
}

// takenOver is elsewhere, once the process behind the held connection has been
// seen alive since: a restart is no second runtime.
func (w *view) takenOver() *Listener {
	if l := w.elsewhere(); l != nil && w.f.Evidence.Process.At.After(l.Since) {
		return l
	}
	return nil
}

func (w *view) takenOverEvidence() []string {
	l := w.takenOver()
	if l == nil {
		return w.foreignHop()
	}
	out := []string{
		fmt.Sprintf("a new connection to %s reaches %s, for %s", w.f.Endpoint.Path, l.name(), Seconds(w.age(l.Since))),
		"the connection held since before belongs to " + w.f.Evidence.Process.name() + ", which is alive",
	}
	if p := w.f.Probe; !p.FailedSince.IsZero() && !p.At.Before(l.Since) {
		out = append(out, "a fresh connection: "+ProbeText(&p))
	}
	return append(out, w.lastAnswerText())
}

// foreignHop is the evidence that another program than the expected one listens at the
// socket of a hop behind the runtime, nil for none.
func (w *view) foreignHop() []string {
	if w.hop == nil || w.f.Probe.Cause != CauseProtocol {
		return nil
	}
	out := []string{ProbeText(&w.f.Probe)}
	if l := w.f.Evidence.Listener; l != nil {
		out = append(out, fmt.Sprintf("a new connection to %s reaches %s", w.hop.Socket, l.name()))
	}
	return out
}

func (w *view) takenOverNext() string {
	l, path := w.takenOver(), w.f.Endpoint.Path
	if l == nil {
		return ""
	}
	return fmt.Sprintf("Find out which of %s and %s is this node's runtime, stop the other, and put the socket back: "+
		"`ls -li %s`, `findmnt -T %s`.", w.f.Evidence.Process.name(), l.name(), path, path)
}

// hidden reports whether the socket is there for the runtime and missing in plegd's own
// mounts.
func (w *view) hidden() bool { l := w.f.Evidence.Listener; return l != nil && l.OtherMounts }

// endNext is the step where another start of the runtime would fail: something else
// stands at its path, or a process that no longer serves still lives. "" elsewhere.
func (w *view) endNext() string {
	fresh, path := w.fresh.Cause, w.f.Endpoint.Path
	switch {
	case fresh == CauseNotSocket || fresh == CauseRefused: // the held connection is still answered
		return fmt.Sprintf("Remove what stands at %s (`stat %s`): the runtime runs, "+
			"and makes its socket again when it is restarted after that.", path, path)
	case w.cause == CauseNotSocket:
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
	if p == nil || q == nil || !p.Alive || !q.Listening || q.ListeningSince.IsZero() {
		return nil
	}
	since := p.Start // the runtime may have answered while this one lived beside it
	if n := len(p.Restarts); n > 0 {
		since = p.Restarts[n-1]
	}
	if w.lastAnswer.After(since) {
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
	if w.cause != CauseMissing && w.cause != CauseRefused || p == nil || !p.Alive || q != nil && q.Listening {
		return nil
	}
	served := w.lastAnswer.After(p.Start) || w.age(p.Start) > youngFor
	if !served || r.Failures < 2 || p.At.Before(r.Last.Start) {
		return nil
	}
	return p
}

// listensUnlinked reports whether no connection can be made because the path has
// no file, although the runtime's process listens on a socket of that name. A
// connect that failed before the listener was first seen proves nothing: the
// runtime may have bound its socket since.
func (w *view) listensUnlinked() bool {
	p, q, l, failed := w.f.Evidence.Process, w.f.Evidence.Queue, w.f.Evidence.Listener, w.f.Probe.FailedSince
	if w.cause != CauseMissing || p == nil || l == nil || w.hidden() || w.justListening() || !w.listensSince(failed) {
		return false
	}
	sampled := !p.At.Before(failed) && !l.At.Before(failed)
	return sampled && p.Alive && q.Inode == l.Inode && l.PID == p.PID
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
	return q != nil && q.Listening && !q.ListeningSince.IsZero() && !w.f.Probe.At.After(q.ListeningSince)
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

// listenerChanged reports whether another socket or process is at the path than
// the last probe met.
func (w *view) listenerChanged() bool {
	l, q := w.f.Evidence.Listener, w.f.Evidence.Queue
	return w.probedBefore() || l != nil && (q != nil && q.Inode != l.Inode || l.Since.After(w.f.Probe.At))
}

// probedBefore reports whether what the last probe met has gone since, or another
// socket listens since: no connection to that one has been made yet.
func (w *view) probedBefore() bool {
	q := w.f.Evidence.Queue
	if q == nil {
		return false
	}
	if q.Listening {
		return q.ListeningSince.After(w.f.Probe.At)
	}
	return q.At.After(w.f.Probe.At)
}

// name says which process listens at the path.
func (l *Listener) name() string {
	if l.PID == 0 {
		return "a process in another pid namespace"
	}
	return processName(l.PID, l.Comm, l.Command, l.Unit)
}
