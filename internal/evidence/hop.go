package evidence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// hop has the sources of one process that serves a socket on a call's way: the accept
// queue, the listener, the process and its cgroup. Of a hop behind the runtime it has a
// probe too; the runtime's is the Dialer.
type hop struct {
	name, caution string
	probe         *prober // nil for the runtime
	queue         *Watch[health.Queue]
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
	h := &hop{name: o.name, caution: o.caution, queue: NewQueue(o.path)}
	inode := func() uint64 {
		if q := h.queue.Value(); q != nil {
			return q.Inode
		}
		return 0
	}
	h.process = NewProcess(ProcessOptions{ProcFS: o.procfs, Table: o.table, PeerPID: o.held, ListenerInode: inode})
	listener := NewListener(ListenerOptions{
		ProcFS: o.procfs, Table: o.table, Path: o.path, Queue: h.queue.Value, Peer: o.peer,
		Held: h.process.PID, Moved: o.moved,
	})
	cgroup := NewCgroup(o.procfs, o.sysfs, h.process.PID)
	if o.name != "" {
		for _, name := range []*string{&h.queue.spec.Name, &listener.spec.Name, &h.process.spec.Name, &cgroup.spec.Name} {
			*name = o.name + "_" + *name
		}
	}
	h.sources = []Source{h.queue, listener, h.process, cgroup}
	return h
}

// newHopBehind returns a hop behind the runtime. find returns the path of its socket, ""
// where there is none; it is called by one goroutine at a time and may block for as
// long as a source may.
func newHopBehind(o hopOptions, find func(context.Context) string, exchange exchange) *hop {
	p := &prober{find: find, exchange: exchange, timeout: probeTimeout, queuedFor: queuedFor}
	o.path, o.peer = p.path, p.newest
	var h *hop
	o.held = func() int {
		if pid := h.process.PID(); pid != 0 {
			return pid // what takes its socket over is not the hop
		}
		return int(p.server.Load())
	}
	h = newHop(o)
	h.probe = p
	h.sources = append([]Source{newProbeWatch(o.name, p)}, h.sources...)
	return h
}

// facts returns the last samples of a hop behind the runtime; ok is false while it has
// no socket.
func (h *hop) facts() (out health.Hop, ok bool) {
	if h.probe == nil {
		return health.Hop{}, false
	}
	e := health.Evidence{}
	for _, s := range h.sources {
		s.Facts(&e)
	}
	e.Hop.Socket, e.Caution = h.probe.path(), h.caution
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
	// probeTimeout limits a probe's connect and its wait for an answer.
	probeTimeout = time.Second
	// maxAnswer is more than a probe reads of any answer, in bytes.
	maxAnswer = 4 << 10
)

// exchange is a request and the check of its answer: whether that is complete, and the
// fault that it shows.
type exchange struct {
	request string
	check   func(answer []byte) (complete bool, cause health.Cause, detail string)
}

// prober makes fresh connections to the socket of a hop behind the runtime. The hop
// before it keeps connections open, and answers while this one accepts nobody.
type prober struct {
	find               func(context.Context) string
	exchange           exchange
	timeout, queuedFor time.Duration

	socket atomic.Pointer[string]
	server atomic.Int64 // the process that listened when a connection was made, unless it is foreign
	peer   atomic.Pointer[cri.DialResult]

	last health.HopProbe
	// queued is a connection that has yet to be answered. It stays in the accept queue
	// whether it is closed or not; kept, it shows when the hop is back, and spares it
	// the next one.
	queued net.Conn
}

func newProbeWatch(name string, p *prober) *Watch[health.HopProbe] {
	return NewWatch(Spec[health.HopProbe]{
		// A failed stage is an answer: it must not run into the limit of the sample.
		Name: name + "_probe", Every: 1, Timeout: 3*p.timeout + time.Second, Gather: p.gather,
		Store: func(e *health.Evidence, v *health.HopProbe) { e.Answer = v },
	})
}

// path returns the path of the hop's socket, "" while there is none. It never waits.
func (p *prober) path() string {
	if s := p.socket.Load(); s != nil {
		return *s
	}
	return ""
}

// newest returns the process that listened when the newest connection was made, and when.
func (p *prober) newest() (pid int, at time.Time) {
	if d := p.peer.Load(); d != nil {
		return d.PeerPID, d.At
	}
	return 0, time.Time{}
}

func (p *prober) gather(ctx context.Context) (*health.HopProbe, error) {
	socket := p.find(ctx)
	if socket != p.path() {
		p.drop()
		p.last = health.HopProbe{}
		p.peer.Store(nil)
		p.server.Store(0)
		p.socket.Store(&socket)
	}
	if socket == "" {
		return nil, ErrNoData
	}
	next := p.last.Probe
	if p.queued == nil || !p.again(ctx, &next) {
		if err := p.connect(ctx, socket, &next); err != nil {
			return nil, err
		}
	}
	p.judge(next)
	out := p.last
	return &out, nil
}

// again reads the connection that waits. It returns false where another one is to be
// made.
func (p *prober) again(ctx context.Context, next *health.Probe) bool {
	err := p.answer(ctx, p.queued, next)
	if isTimeout(err) {
		if time.Since(next.At) < p.queuedFor {
			return true // still the same probe
		}
		p.drop()
		return false
	}
	p.drop()
	return err == nil
}

// connect makes a new connection.
func (p *prober) connect(ctx context.Context, socket string, next *health.Probe) error {
	*next = health.Probe{At: time.Now()}
	dialer := net.Dialer{Timeout: p.timeout}
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		next.Stage = health.StageConnect
		next.Cause, next.Detail = ConnectCause(err, socket)
		return ctx.Err()
	}
	next.Connect = time.Since(next.At)
	peer := cri.PeerPID(conn)
	p.peer.Store(&cri.DialResult{At: next.At, PeerPID: peer})
	_ = conn.SetWriteDeadline(time.Now().Add(p.timeout))
	if _, err = io.WriteString(conn, p.exchange.request); err == nil {
		err = p.answer(ctx, conn, next)
	}
	if isTimeout(err) {
		p.queued = conn
		next.Stage, next.Cause = health.StageSettings, health.CauseTimeout
		next.Detail = fmt.Sprintf("connected, and not answered within %s", p.timeout)
	} else {
		_ = conn.Close()
	}
	ends := []error{io.EOF, syscall.ECONNRESET, syscall.EPIPE, os.ErrClosed}
	switch {
	case err == nil || isTimeout(err):
	case slices.ContainsFunc(ends, func(end error) bool { return errors.Is(err, end) }):
		next.Stage, next.Cause, next.Detail = health.StageRPC, health.CauseClosed, "the other end closed the connection"
	default:
		next.Stage, next.Cause, next.Detail = health.StageRPC, health.CauseError, cut(err.Error())
	}
	if next.Cause != health.CauseProtocol {
		p.server.Store(int64(peer))
	}
	return ctx.Err()
}

// answer reads the answer on a connection into a probe. The error is of reading.
func (p *prober) answer(ctx context.Context, conn net.Conn, next *health.Probe) error {
	deadline := time.Now().Add(p.timeout)
	if limit, ok := ctx.Deadline(); ok && limit.Before(deadline) {
		deadline = limit
	}
	if err := conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	buf, n := make([]byte, maxAnswer), 0
	for {
		m, err := conn.Read(buf[n:])
		n += m
		complete, cause, detail := p.exchange.check(buf[:n])
		switch {
		case complete, n == len(buf), n > 0 && err != nil && !isTimeout(err):
			next.RPC = time.Since(next.At) - next.Connect
			next.Stage, next.Cause, next.Detail = "", cause, detail
			if cause != health.CauseNone {
				next.Stage = health.StageRPC
			}
			return nil
		case err != nil:
			return err
		}
	}
}

// judge stores a probe with those before it.
func (p *prober) judge(next health.Probe) {
	before := p.last
	if next.OK = next.Cause == health.CauseNone; next.OK {
		next.FailedSince, next.Failures = time.Time{}, 0
		p.last.AnsweredAt = time.Now()
		if before.OKSince.IsZero() {
			p.last.OKSince = p.last.AnsweredAt
		}
	} else {
		p.last.OKSince = time.Time{}
		next.FailedSince, next.Failures = next.At, 1
		if !before.FailedSince.IsZero() {
			next.FailedSince, next.Failures = before.FailedSince, before.Failures
			if !next.At.Equal(before.At) { // not the one that still waits
				next.Failures++
			}
		}
	}
	p.last.Probe = next
}

func (p *prober) drop() {
	if p.queued != nil {
		_ = p.queued.Close()
		p.queued = nil
	}
}
