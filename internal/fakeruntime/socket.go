package fakeruntime

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// socketFaults is the state of the faults below gRPC. It outlives the listener
// and the server, so that a restarted runtime keeps its faults.
type socketFaults struct {
	// state is read by connections with every read and write.
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

// deadliner is a listener with an Accept that can be interrupted.
type deadliner interface{ SetDeadline(t time.Time) error }

func newSocketFaults() *socketFaults {
	f := &socketFaults{
		terms: []Term{off},
		reset: make(chan struct{}),
		conns: make(map[*faultConn]struct{}),
	}
	f.state.Store(&socketState{term: off, changed: make(chan struct{})})
	return f
}

// set replaces the remaining terms. Setting the active terms again changes nothing, so
// that held connections stay held.
func (f *socketFaults) set(terms []Term) {
	if len(terms) == 0 {
		terms = []Term{off}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Equal(terms, f.terms) {
		return
	}
	f.terms = slices.Clone(terms)
	close(f.reset)
	f.reset = make(chan struct{})
	f.publish()
}

func (f *socketFaults) current() []Term {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.terms)
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

// publish makes the first term active. Called with the lock held.
func (f *socketFaults) publish() {
	old := f.state.Load()
	first := f.terms[0]
	first.count = 0
	if old.term == first {
		return
	}
	f.state.Store(&socketState{term: first, changed: make(chan struct{})})
	f.holdListener()
	close(old.changed)
}

// holdListener interrupts the listener's Accept, or lets it continue.
func (f *socketFaults) holdListener() {
	if f.listener == nil {
		return
	}
	deadline := time.Time{}
	if f.state.Load().holds() {
		deadline = time.Unix(1, 0)
	}
	// It fails on a closed listener only, which accepts nothing anyway.
	_ = f.listener.SetDeadline(deadline)
}

func (f *socketFaults) attach(l deadliner) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listener = l
	f.holdListener()
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

// faultConn is an accepted connection that a fault can freeze.
type faultConn struct {
	net.Conn
	faults *socketFaults
	closed chan struct{}
	once   sync.Once
}

func (f *socketFaults) wrap(c net.Conn) *faultConn {
	fc := &faultConn{Conn: c, faults: f, closed: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[fc] = struct{}{}
	return fc
}

// thawed waits while the runtime is frozen.
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

// Read reads from the connection, unless it is frozen. A read that has begun takes
// the next bytes from the kernel, but the server gets them only after the freeze.
func (c *faultConn) Read(p []byte) (int, error) {
	if err := c.thawed(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if frozen := c.thawed(); frozen != nil {
		return 0, frozen
	}
	return n, err
}

// Write writes to the connection, unless it is frozen.
func (c *faultConn) Write(p []byte) (int, error) {
	if err := c.thawed(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
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
