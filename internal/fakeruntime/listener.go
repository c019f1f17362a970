package fakeruntime

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/soheilhy/cmux"
	"google.golang.org/grpc"
)

// baseListener is a unix socket's listener or the one in memory.
type baseListener interface {
	net.Listener
	deadliner
}

// faultListener accepts from another listener as far as the faults allow it.
// Its Accept returns only connections for gRPC.
type faultListener struct {
	base   baseListener
	faults *socketFaults

	out    chan net.Conn // to gRPC
	closed chan struct{}
	once   sync.Once
	pumped chan struct{} // closed when nothing more will be accepted
	wg     sync.WaitGroup
}

func newFaultListener(base baseListener, faults *socketFaults) *faultListener {
	l := &faultListener{
		base: base, faults: faults,
		out: make(chan net.Conn), closed: make(chan struct{}), pumped: make(chan struct{}),
	}
	faults.attach(base)
	go l.pump()
	return l
}

// Accept returns the next connection for gRPC.
func (l *faultListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.out:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Addr returns the address of the listener behind it.
func (l *faultListener) Addr() net.Addr { return l.base.Addr() }

// Close stops accepting. Connections that a fault holds stay open until they are
// closed; wait waits for them.
func (l *faultListener) Close() error {
	var err error
	l.once.Do(func() {
		close(l.closed)
		l.faults.attach(nil)
		err = l.base.Close()
	})
	return err
}

func (l *faultListener) wait() { l.wg.Wait() }

// mayAccept waits while connections stay in the queue. It is false once the
// listener is closed.
func (l *faultListener) mayAccept() bool {
	for {
		state := l.faults.state.Load()
		if !state.holds() {
			return true
		}
		select {
		case <-state.changed:
		case <-l.closed:
			return false
		}
	}
}

func (l *faultListener) pump() {
	defer close(l.pumped)
	for l.mayAccept() {
		raw, err := l.base.Accept()
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded): // interrupted by a fault
			continue
		case errors.Is(err, net.ErrClosed):
			return
		default:
			time.Sleep(100 * time.Millisecond) // out of file descriptors, for instance
			continue
		}
		c := l.faults.wrap(raw)
		// Accepted just as the fault began: for the client it is still in the queue.
		if !l.mayAccept() {
			_ = c.Close()
			return
		}
		t, reset := l.faults.take()
		l.wg.Go(func() { l.treat(c, t, reset) })
	}
}

// treat hands a new connection to gRPC, or holds it as the fault says until the
// client closes it, the fault is replaced, or the server stops.
func (l *faultListener) treat(c *faultConn, t Term, reset <-chan struct{}) {
	switch t.kind {
	case kindClose:
		_ = c.Close()
	case kindNoSettings:
		l.linger(c, reset, nil)
	case kindSettingsOnly:
		// An empty SETTINGS frame: length 0, type 4, no flags, stream 0.
		l.linger(c, reset, []byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
	case kindGarbage:
		l.linger(c, reset, garbage())
	default:
		select {
		case l.out <- c:
		case <-l.closed:
			_ = c.Close()
		}
	}
}

// linger writes a greeting and then only reads.
func (l *faultListener) linger(c *faultConn, reset <-chan struct{}, greeting []byte) {
	done := make(chan struct{})
	defer close(done)
	l.wg.Go(func() {
		select {
		case <-reset:
			_ = c.Close()
		case <-done:
		}
	})
	if _, err := c.Write(greeting); err == nil {
		_, _ = io.Copy(io.Discard, c)
	}
	_ = c.Close()
}

// serveThroughCmux serves gRPC as CRI-O does (cmd/crio/main.go): cmux reads the
// client's preface, SETTINGS and HEADERS before a server sees the connection. So
// CRI-O sends nothing before the client does, answers no PING before the first
// HEADERS, and serves gRPC only if the content-type is exactly "application/grpc".
func serveThroughCmux(s *grpc.Server, l net.Listener) {
	m := cmux.New(l)
	matched := m.MatchWithWriters(cmux.HTTP2MatchHeaderFieldSendSettings("content-type", "application/grpc"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.Serve() // until the listener is closed
	}()
	_ = s.Serve(matched)
	<-done
}
