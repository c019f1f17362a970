package fakeruntime

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// socketFaults is the state of the faults below gRPC. It outlives the listener
// and the server, so that a restarted runtime has the faults it had.
type socketFaults struct {
	// state is what connections look at with every read and write.
	state atomic.Pointer[socketState]

	mu       sync.Mutex
	terms    []Term
	reset    chan struct{} // closed and replaced when the terms are replaced
	listener deadliner     // the present one, nil while there is none
	conns    map[*faultConn]struct{}
	accepted int
}

// socketState is the active fault. It is replaced, never changed.
type socketState struct {
	term    Term
	changed chan struct{} // closed when another state is active
}

func (s *socketState) frozen() bool { return s.term.kind == kindFreeze }

// holds reports whether connections stay in the queue.
func (s *socketState) holds() bool { return s.frozen() || s.term.kind == kindNoAccept }

// deadliner is a listener whose Accept can be interrupted.
type deadliner interface{ SetDeadline(t time.Time) error }

// past is a deadline that interrupts at once.
func past() time.Time { return time.Unix(1, 0) }

func newSocketFaults() *socketFaults {
	f := &socketFaults{
		terms: []Term{Off()},
		reset: make(chan struct{}),
		conns: make(map[*faultConn]struct{}),
	}
	f.state.Store(&socketState{term: Off(), changed: make(chan struct{})})
	return f
}

// set puts terms in place of what is left of the present ones. Setting the
// active terms again changes nothing, so that held connections stay held.
func (f *socketFaults) set(terms []Term) {
	if len(terms) == 0 {
		terms = []Term{Off()}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if sameTerms(terms, f.terms) {
		return
	}
	f.terms = append([]Term(nil), terms...)
	close(f.reset)
	f.reset = make(chan struct{})
	f.publish()
}

func sameTerms(a, b []Term) bool {
	return Failpoints{Socket: a}.String() == Failpoints{Socket: b}.String()
}

func (f *socketFaults) current() []Term {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Term(nil), f.terms...)
}

// take uses up one application of the fault for a connection, and returns it with
// the channel that is closed when the fault is replaced.
func (f *socketFaults) take() (Term, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.accepted++
	t := useUp(&f.terms)
	f.publish()
	return t, f.reset
}

// publish makes the term at the head active. Called with the lock held.
func (f *socketFaults) publish() {
	old := f.state.Load()
	head := f.terms[0]
	head.count = 0
	if old.term == head {
		return
	}
	state := &socketState{term: head, changed: make(chan struct{})}
	// A frozen connection must not see the new state before its deadlines are
	// back, nor be interrupted before it can see why.
	switch {
	case state.frozen():
		f.state.Store(state)
		for c := range f.conns {
			c.interrupt()
		}
	case old.frozen():
		for c := range f.conns {
			c.restore()
		}
		f.state.Store(state)
	default:
		f.state.Store(state)
	}
	f.holdListener(state)
	close(old.changed)
}

// holdListener interrupts the listener's Accept, or lets it go on.
func (f *socketFaults) holdListener(state *socketState) {
	if f.listener == nil {
		return
	}
	deadline := time.Time{}
	if state.holds() {
		deadline = past()
	}
	// It fails on a closed listener only, and that one accepts nothing anyway.
	_ = f.listener.SetDeadline(deadline)
}

func (f *socketFaults) attach(l deadliner) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listener = l
	if l != nil {
		f.holdListener(f.state.Load())
	}
}

// closeAll cuts every accepted connection.
func (f *socketFaults) closeAll() {
	f.mu.Lock()
	conns := make([]*faultConn, 0, len(f.conns))
	for c := range f.conns {
		conns = append(conns, c)
	}
	f.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

func (f *socketFaults) counts() (accepted, open int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accepted, len(f.conns)
}

// faultConn is an accepted connection that freezes and trickles.
type faultConn struct {
	net.Conn
	faults *socketFaults
	closed chan struct{}
	once   sync.Once

	mu          sync.Mutex
	deadline    time.Time // of reads, as the server set it
	interrupted bool
}

func (f *socketFaults) wrap(c net.Conn) *faultConn {
	fc := &faultConn{Conn: c, faults: f, closed: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[fc] = struct{}{}
	return fc
}

// thawed waits while everything is frozen.
func (c *faultConn) thawed() error {
	for {
		state := c.faults.state.Load()
		if !state.frozen() {
			return nil
		}
		select {
		case <-state.changed:
		case <-c.closed:
			return net.ErrClosed
		}
	}
}

// Read reads from the connection, unless it is frozen.
func (c *faultConn) Read(p []byte) (int, error) {
	for {
		if err := c.thawed(); err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(p)
		if n == 0 && isTimeout(err) && !c.expired() {
			// Interrupted by a freeze, so that the bytes that come now stay unread
			// in the kernel. If it is over already, look again with the right
			// deadline.
			if !c.faults.state.Load().frozen() {
				c.restore()
			}
			continue
		}
		// What was read just as the freeze began has not been seen yet.
		if frozen := c.thawed(); frozen != nil {
			return 0, frozen
		}
		return n, err
	}
}

// Write writes to the connection, unless it is frozen, and slowly if it drips. A
// write that has begun is not interrupted: the kernel has its bytes.
func (c *faultConn) Write(p []byte) (int, error) {
	written := 0
	for {
		if err := c.thawed(); err != nil {
			return written, err
		}
		state := c.faults.state.Load()
		chunk := p[written:]
		if drips := state.term.kind == kindDrip; drips && len(chunk) > state.term.size {
			chunk = chunk[:state.term.size]
		}
		n, err := c.Conn.Write(chunk)
		written += n
		if err != nil || written == len(p) && state.term.kind != kindDrip {
			return written, err
		}
		if state.term.kind == kindDrip {
			if err := c.pause(state); err != nil {
				return written, err
			}
		}
		if written == len(p) {
			return written, nil
		}
	}
}

func (c *faultConn) pause(state *socketState) error {
	timer := time.NewTimer(state.term.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-state.changed:
	case <-c.closed:
		return net.ErrClosed
	}
	return nil
}

// Close closes the connection, frozen or not.
func (c *faultConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.faults.mu.Lock()
		delete(c.faults.conns, c)
		c.faults.mu.Unlock()
	})
	return c.Conn.Close()
}

// SetDeadline sets the deadlines of reads and writes.
func (c *faultConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of reads, which a freeze borrows.
func (c *faultConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	if c.interrupted {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *faultConn) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted = true
	_ = c.Conn.SetReadDeadline(past())
}

func (c *faultConn) restore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted = false
	_ = c.Conn.SetReadDeadline(c.deadline)
}

// expired reports whether the server's own deadline has passed.
func (c *faultConn) expired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.deadline.IsZero() && !time.Now().Before(c.deadline)
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}
