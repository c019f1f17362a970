package evidence

import (
	"strings"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// hop is a process that serves a socket on a call's way, with the sources that show it:
// the accept queue, the listener, the process and its cgroup. One behind the runtime has
// a Dialer too; the runtime's is the daemon's.
type hop struct {
	// prefix begins the names of its sources, "" for the runtime; caution is what a
	// restart of it does.
	prefix, caution string
	procfs, sysfs   string
	table           *node.Table
	path            func() string
	// held returns the process at the other end of a connection to the socket, by
	// SO_PEERCRED: 0 while it is not known, 1 where systemd made the socket. newest returns
	// the one that listened when the newest connection was made, and when that was.
	held   func() int
	newest func() (pid int, at time.Time)
	// moved is called when the path leads to another socket.
	moved func()

	dialer  *Dialer // nil for the runtime
	queue   func() *health.Queue
	process *Process
	sources []Source
}

// watch makes the sources.
func (h *hop) watch() {
	queue := newQueue(h)
	h.queue, h.process = queue.Value, newProcess(h)
	cgroup := newCgroup(h.prefix+"cgroup", h.procfs, h.sysfs, h.process.PID)
	h.sources = []Source{queue, newListener(h), h.process, cgroup}
}

// watchBehind makes the sources of a hop behind the runtime. find returns the path of its
// socket, "" where there is none; it is called by one goroutine at a time and may block
// for as long as a source may. failed is called for each probe that fails.
func (h *hop) watchBehind(find func() string, g greeting, failed func()) {
	done := func(p health.Probe) {
		if !p.OK {
			failed()
		}
	}
	d := NewDialer(DialOptions{Path: find, Period: probePeriod, Timeout: probePeriod, greeting: g, Done: done})
	h.dialer, h.newest, h.moved = d, d.Peer, d.Moved
	h.path = func() string { return *d.path.Load() }
	h.held = func() int {
		if pid := h.process.PID(); pid != 0 {
			return pid // what takes its socket over is not the hop
		}
		if d.Last().Cause == health.CauseProtocol {
			return 0
		}
		pid, _ := d.Peer()
		return pid
	}
	h.watch()
}

// cgroupOf returns the /proc/PID/cgroup of a process, "" of one that has ended.
func (h *hop) cgroupOf(pid int) string {
	b, _ := node.ReadFile(node.Path(h.procfs, pid, "cgroup"))
	return string(b)
}

// nameOf returns the first word of a process's arguments and its systemd unit, each ""
// where it cannot be read. The other arguments may hold a secret.
func (h *hop) nameOf(id node.ID) (command, unit string) {
	if args := h.table.Args(id); len(args) > 0 {
		command, _, _ = strings.Cut(args[0], " ")
		command = strings.ToValidUTF8(command[:min(len(command), 100)], "?")
	}
	return command, unitOf(node.ParseCgroups([]byte(h.cgroupOf(id.PID))).Main())
}

// unitOf returns the service of a cgroup, "" for none. A scope is not returned: the name
// of a container's scope holds the container's id.
func unitOf(cgroup string) (unit string) {
	for name := range strings.SplitSeq(cgroup, "/") {
		if strings.HasSuffix(name, ".service") {
			unit = name
		}
	}
	return unit
}

// facts stores the last samples of a hop behind the runtime, if it has a socket, and the
// state of its sources as that of one: the first one that fails.
func (h *hop) facts(out *health.Evidence) {
	e := health.Evidence{}
	var state health.Source
	for i, s := range h.sources {
		s.Facts(&e)
		if is, ok := s.Source(); ok && (i == 0 || !is.Up && state.Err == "") {
			state = is
		}
	}
	if e.Hop.Socket, e.Caution = h.path(), h.caution; e.Hop.Socket != "" {
		if p := h.dialer.last.Load(); !p.At.IsZero() {
			e.Answer = p
		}
		out.Hops = append(out.Hops, e.Hop)
		out.Sources[strings.TrimSuffix(h.prefix, "_")] = state
	}
}

// probePeriod is the time between two probes of a hop behind the runtime, and the limit
// of a stage of one.
const probePeriod = time.Second
