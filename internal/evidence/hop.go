package evidence

import (
	"context"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// hop has the sources of one process that serves a socket on a call's way: the accept
// queue, the listener, the process and its cgroup. One behind the runtime has a Dialer
// too; the runtime's is the daemon's.
type hop struct {
	name, caution string
	dialer        *hopDialer // nil for the runtime
	process       *Process
	sources       []Source
}

// hopOptions configure a hop.
type hopOptions struct {
	// name is the prefix of its sources' names, "" for the runtime.
	name, caution string
	procfs, sysfs string
	table         *node.Table
	path          func() string
	// held returns the process at the other end of a connection to the socket, and peer
	// the one that listened when the newest connection was made, and when that was.
	held func() int
	peer func() (pid int, at time.Time)
	// moved is called when the path leads to another socket; nil: nothing.
	moved func()
}

func newHop(o hopOptions) *hop {
	h := &hop{name: o.name, caution: o.caution}
	queue := NewQueue(o.path, o.moved)
	inode := func() uint64 {
		if q := queue.Value(); q != nil {
			return q.Inode
		}
		return 0
	}
	h.process = NewProcess(ProcessOptions{ProcFS: o.procfs, Table: o.table, PeerPID: o.held, ListenerInode: inode})
	listener := NewListener(ListenerOptions{
		ProcFS: o.procfs, Table: o.table, Path: o.path, Queue: queue.Value, Peer: o.peer,
		Held: h.process.PID,
	})
	cgroup := NewCgroup(o.procfs, o.sysfs, h.process.PID)
	if o.name != "" {
		idle := func() bool { return o.path() == "" }
		queue.spec.Idle, listener.spec.Idle, h.process.spec.Idle, cgroup.spec.Idle = idle, idle, idle, idle
		for _, name := range []*string{&queue.spec.Name, &listener.spec.Name, &h.process.spec.Name, &cgroup.spec.Name} {
			*name = o.name + "_" + *name
		}
	}
	h.sources = []Source{queue, listener, h.process, cgroup}
	return h
}

// newHopBehind returns a hop behind the runtime. find returns the path of its socket, ""
// where there is none; it is called by one goroutine at a time and may block for as
// long as a source may.
func newHopBehind(o hopOptions, find func() string, e *exchange) *hop {
	d := &hopDialer{name: o.name + "_probe"}
	d.Dialer = NewDialer(DialOptions{
		Path: find, Period: probePeriod, Timeout: probeTimeout, exchange: e, Done: d.done,
	})
	o.path, o.peer, o.moved = d.socket, d.Peer, d.Moved
	var h *hop
	o.held = func() int {
		if pid := h.process.PID(); pid != 0 {
			return pid // what takes its socket over is not the hop
		}
		if d.Last().Cause == health.CauseProtocol {
			return 0
		}
		pid, _ := d.Peer()
		return pid
	}
	h = newHop(o)
	h.dialer = d
	h.sources = append(h.sources, d)
	return h
}

// facts returns the last samples of a hop behind the runtime; ok is false while it has
// no socket.
func (h *hop) facts() (out health.Hop, ok bool) {
	if h.dialer == nil {
		return health.Hop{}, false
	}
	e := health.Evidence{}
	for _, s := range h.sources {
		s.Facts(&e)
	}
	e.Hop.Socket, e.Caution = h.dialer.socket(), h.caution
	return e.Hop, e.Hop.Socket != ""
}

// source returns the state of a hop's sources as that of one: the first one that fails.
func (h *hop) source() (out health.Source) {
	for i, s := range h.sources {
		if state, ok := s.Source(); ok && (i == 0 || !state.Up) {
			if out = state; !state.Up {
				return out
			}
		}
	}
	return out
}

const (
	// probePeriod is the time between two probes of a hop behind the runtime,
	// probeTimeout limits each stage of one.
	probePeriod  = time.Second
	probeTimeout = time.Second
)

// hopDialer is the Dialer of a hop behind the runtime as a source. The hop before it
// keeps connections open, and answers while this one accepts nobody.
type hopDialer struct {
	*Dialer
	name   string
	notify func()
	start  sync.Once
}

func (d *hopDialer) String() string { return d.name }

// Source implements Source: that a probe fails is an answer.
func (d *hopDialer) Source() (s health.Source, ok bool) {
	p := d.Last()
	return health.Source{Up: true, At: p.At, Duration: p.Connect + p.Settings}, !p.At.IsZero()
}

// Facts implements Source.
func (d *hopDialer) Facts(e *health.Evidence) {
	if p := d.last.Load(); !p.At.IsZero() {
		e.Answer = p
	}
}

// Notify implements Source: f is called for each probe that fails.
func (d *hopDialer) Notify(f func()) { d.notify = f }

func (d *hopDialer) done(p health.Probe) {
	if !p.OK && d.notify != nil {
		d.notify()
	}
}

// socket returns the path of the hop's socket, "" while there is none. It never waits.
func (d *hopDialer) socket() string { return *d.path.Load() }

func (d *hopDialer) tick(ctx context.Context, _ int, _ bool) {
	d.start.Do(func() {
		go func() {
			for ctx.Err() == nil {
				if err := bounded.Recovered(func() error { return d.Run(ctx) }); err != nil {
					now := time.Now()
					d.publish(ctx, health.Probe{At: now, Stage: health.StageRPC, Cause: health.CauseError, Detail: cut(err.Error())})
					time.Sleep(probePeriod)
				}
			}
		}()
	})
}
