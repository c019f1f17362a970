package fakeruntime

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/test/bufconn"
)

// pipeSize is how much one direction of a connection in memory holds: the usual
// net.core.wmem_default.
const pipeSize = 212992

// memory is a place to dial and listen at, as a path is. It stays while
// listeners come and go.
type memory struct {
	mu       sync.Mutex
	name     string
	listener *memoryListener
	failure  error // how a dial fails while nobody listens
	forced   error // how every dial fails, nil if it does not
	dials    int
}

func (m *memory) listen(backlog int) *memoryListener {
	l := &memoryListener{
		addr:   &net.UnixAddr{Name: m.name, Net: "unix"},
		queue:  make(chan net.Conn, backlog+1), // as Linux: one more than asked for
		closed: make(chan struct{}), due: make(chan struct{}),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listener = l
	return l
}

// dial connects, or fails with the error that a dial of a path would.
func (m *memory) dial(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dials++
	failure := m.forced
	if failure == nil && m.listener == nil {
		failure = m.failure
	}
	if failure == nil {
		client, server := pipe()
		if m.listener.enqueue(server) {
			return client, nil
		}
		failure = syscall.EAGAIN // the accept queue is full
	}
	var errno syscall.Errno
	if errors.As(failure, &errno) {
		failure = os.NewSyscallError("connect", errno)
	}
	return nil, &net.OpError{
		Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: m.name, Net: "unix"}, Err: failure,
	}
}

// gone says that nobody listens any more, and how dials fail from now on.
func (m *memory) gone(failure error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listener, m.failure = nil, failure
}

func (m *memory) force(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forced = err
}

func (m *memory) counts() (dials, queued int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listener != nil {
		queued = len(m.listener.queue)
	}
	return m.dials, queued
}

// pipe returns both ends of a buffered connection. bufconn has the pipe and only
// hands it out through a listener without a queue, so each gets one of its own.
func pipe() (client, server net.Conn) {
	l := bufconn.Listen(pipeSize)
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			panic(err) // it is closed below, after both ends are there
		}
		accepted <- c
	}()
	client, err := l.Dial()
	if err != nil {
		panic(err)
	}
	server = <-accepted
	_ = l.Close()
	return client, server
}

// memoryListener has an accept queue as the kernel's: a connect succeeds as soon
// as there is room in it, whether anybody accepts or not.
type memoryListener struct {
	addr  net.Addr
	queue chan net.Conn

	mu      sync.Mutex
	closed  chan struct{}
	due     chan struct{} // closed while the deadline is past
	expired bool
	isDown  bool
}

func (l *memoryListener) enqueue(c net.Conn) bool {
	select {
	case l.queue <- c:
		return true
	default:
		return false
	}
}

// Accept takes the oldest connection from the queue.
func (l *memoryListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	due, expired := l.due, l.expired
	l.mu.Unlock()
	if expired {
		return nil, os.ErrDeadlineExceeded
	}
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	case <-due:
		return nil, os.ErrDeadlineExceeded
	case c := <-l.queue:
		return c, nil
	}
}

// SetDeadline interrupts Accept if t is past; it knows no deadline to come.
func (l *memoryListener) SetDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	expired := !t.IsZero() && !time.Now().Before(t)
	switch {
	case expired && !l.expired:
		close(l.due)
	case !expired && l.expired:
		l.due = make(chan struct{})
	}
	l.expired = expired
	return nil
}

// Close ends the listener; what waits in the queue is closed with it.
func (l *memoryListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isDown {
		return nil
	}
	l.isDown = true
	close(l.closed)
	for {
		select {
		case c := <-l.queue:
			_ = c.Close()
		default:
			return nil
		}
	}
}

// Addr is a unix address, so that nothing has to know that this is memory.
func (l *memoryListener) Addr() net.Addr { return l.addr }
