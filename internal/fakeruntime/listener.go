package fakeruntime

import (
	"errors"
	"net"
	"sync"
	"time"
)

// baseListener is a unix socket's listener or the one in memory.
type baseListener interface {
	net.Listener
	deadliner
}

// faultListener accepts from another listener as far as the faults allow it.
// Its Accept hands out only connections that are gRPC's to serve.
type faultListener struct {
	base   baseListener
	faults *socketFaults
	// speakSecond reports whether new connections go through cmux.
	speakSecond func() bool

	out    chan net.Conn // to gRPC
	toMux  chan net.Conn // to cmux: see mux
	closed chan struct{}
	once   sync.Once
	pumped chan struct{} // closed when nothing more will be accepted
	wg     sync.WaitGroup
}

func newFaultListener(base baseListener, faults *socketFaults, speakSecond func() bool) *faultListener {
	l := &faultListener{
		base: base, faults: faults, speakSecond: speakSecond,
		out: make(chan net.Conn), toMux: make(chan net.Conn), closed: make(chan struct{}), pumped: make(chan struct{}),
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

// Close stops accepting. What serves connections that gRPC never got continues
// until they are closed; wait waits for it.
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

// held waits while connections are to stay in the queue. It is false once the
// listener is closed.
func (l *faultListener) held() bool {
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
	for l.held() {
		raw, err := l.base.Accept()
		switch {
		case err == nil:
		case isTimeout(err): // a fault interrupts
			continue
		case errors.Is(err, net.ErrClosed):
			return
		default:
			// Out of file descriptors, for instance: as every server does, wait and
			// try again.
			if !l.sleep(100 * time.Millisecond) {
				return
			}
			continue
		}
		c := l.faults.wrap(raw)
		// Taken just as the fault came: to the client it is still in the queue.
		if !l.held() {
			_ = c.Close()
			return
		}
		t, reset := l.faults.take()
		l.wg.Go(func() { l.talk(c, t, reset) })
	}
}

func (l *faultListener) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closed:
		return false
	}
}

// deliver hands a connection to the server that accepts from to.
func (l *faultListener) deliver(c net.Conn, to chan<- net.Conn) {
	select {
	case to <- c:
	case <-l.closed:
		_ = c.Close()
	}
}
