package health

import "fmt"

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

// name says which process listens at the path.
func (l *Listener) name() string {
	if l.PID == 0 {
		return "a process in another pid namespace"
	}
	return processName(l.PID, l.Comm, l.Command, l.Unit)
}

func (p *Process) name() string { return processName(p.PID, p.Comm, p.Command, p.Unit) }

func processName(pid int, comm, command, unit string) string {
	if command == "" {
		command = comm
	}
	if unit != "" {
		command += ", " + unit
	}
	return fmt.Sprintf("pid %d (%s)", pid, command)
}

func (w *view) takenOverEvidence() []string {
	l := w.takenOver()
	if l == nil {
		return w.foreignHop()
	}
	out := []string{
		fmt.Sprintf("a new connection to %s reaches %s, for %s", w.f.Endpoint.Path, l.name(), short(w.age(l.Since))),
		"the connection held since before belongs to " + w.f.Evidence.Process.name() + ", which is alive",
	}
	if p := w.f.Probe; !p.FailedSince.IsZero() && !p.At.Before(l.Since) {
		out = append(out, "a fresh connection: "+ProbeText(&p))
	}
	return append(out, w.heldEvidence())
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
	l := w.takenOver()
	if l == nil {
		return ""
	}
	p := w.f.Evidence.Process
	return fmt.Sprintf("Find out which of %s and %s is this node's runtime, stop the other, and put the socket back: "+
		"`ls -li %s`, `findmnt -T %s`.",
		p.name(), l.name(), w.f.Endpoint.Path, w.f.Endpoint.Path)
}
