package evidence

import (
	"strings"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// hop is a process that serves a socket on a call's way, with the sources that show it:
// the accept queue, the listener, the process and its cgroup.
type hop struct {
	prefix, caution string // of its sources' names, "" for the runtime; what a restart of it does
	procfs, sysfs   string
	table           *proc.Table
	dialer          *Dialer
	path            func() string
	dialed          func() *cri.DialResult // the last connect(2) of the held connection, nil for none

	queue   func() *facts.Queue
	process *Process
	sources []Source
}

// watch makes the sources.
func (h *hop) watch() *hop {
	queue := newQueue(h)
	h.queue, h.process = queue.Value, newProcess(h)
	cgroup := newCgroup(h.prefix+"cgroup", h.procfs, h.sysfs, h.process.PID)
	h.sources = []Source{queue, newListener(h), h.process, cgroup}
	return h
}

// peers returns the processes at the other end of the held connection to the socket and of
// the last fresh one, by SO_PEERCRED: 0 while it is not known, 1 where systemd made the socket.
func (h *hop) peers() (held, fresh int) {
	if c := h.dialed(); c != nil && c.Err == nil {
		held = c.PeerPID
	}
	if c := h.dialer.peer.Load(); c != nil && h.dialer.Last().Cause != facts.CauseProtocol {
		fresh = c.PeerPID
	}
	return held, fresh
}

// cgroupOf returns the /proc/PID/cgroup of a process, "" of one that has ended.
func (h *hop) cgroupOf(pid int) string {
	b, _ := proc.ReadFile(proc.Path(h.procfs, pid, "cgroup"))
	return string(b)
}

// nameOf returns the first word of a process's arguments, as the others may hold a secret, and
// its systemd service, each "" where it cannot be read.
func (h *hop) nameOf(id proc.ID) (command, unit string) {
	if args := h.table.Args(id); len(args) > 0 {
		command, _, _ = strings.Cut(args[0], " ")
		command = strings.ToValidUTF8(command[:min(len(command), 100)], "?")
	}
	for name := range strings.SplitSeq(proc.ParseCgroups([]byte(h.cgroupOf(id.PID))).Main(), "/") {
		if strings.HasSuffix(name, ".service") {
			unit = name
		}
	}
	return command, unit
}

// facts stores the last samples of a hop behind the runtime, if it has a socket, and the
// state of its sources as that of one: the first one that fails.
func (h *hop) facts(out *facts.Evidence) {
	e := facts.Evidence{Hop: facts.Hop{Socket: h.path(), Caution: h.caution}}
	if e.Socket == "" {
		return
	}
	var state facts.Source
	for i, s := range h.sources {
		if is, ok := s.report(&e); ok && (i == 0 || !is.Up && state.Err == "") {
			state = is
		}
	}
	if p := h.dialer.last.Load(); !p.At.IsZero() {
		e.Answer = p
	}
	out.Hops = append(out.Hops, e.Hop)
	out.Sources[strings.TrimSuffix(h.prefix, "_")] = state
}
