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
	h.queue = queue.Value
	h.process = newProcess(h)
	cgroup := newCgroup(h.prefix+"cgroup", h.procfs, h.sysfs, h.process.PID)
	h.sources = []Source{queue, newListener(h), h.process, cgroup}
}

// watchBehind makes the sources of a hop behind the runtime. find returns the path of its
// socket, "" where there is none; it is called by one goroutine at a time and may block
// for as long as a source may.
func (h *hop) watchBehind(find func() string, e *exchange) {
	d := NewDialer(DialOptions{
		name: h.prefix + "probe", Path: find, Period: probePeriod, Timeout: probeTimeout, exchange: e,
	})
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
	h.sources = append(h.sources, d)
}

// inode returns the inode of the listening socket, 0 while it is not known.
func (h *hop) inode() uint64 {
	if q := h.queue(); q != nil {
		return q.Inode
	}
	return 0
}

// facts stores the last samples of a hop behind the runtime, if it has a socket, and the
// state of its sources as that of one: the first one that fails.
func (h *hop) facts(out *health.Evidence) {
	if h.dialer == nil {
		return // the runtime's are stored themselves
	}
	e := health.Evidence{}
	var state health.Source
	for i, s := range h.sources {
		s.Facts(&e)
		if is, ok := s.Source(); ok && (i == 0 || !is.Up && state.Err == "") {
			state = is
		}
	}
	if e.Hop.Socket, e.Caution = h.path(), h.caution; e.Hop.Socket != "" {
		out.Hops = append(out.Hops, e.Hop)
		out.Sources[strings.TrimSuffix(h.prefix, "_")] = state
	}
}

const (
	// probePeriod is the time between two probes of a hop behind the runtime,
	// probeTimeout limits each stage of one.
	probePeriod  = time.Second
	probeTimeout = time.Second
)
