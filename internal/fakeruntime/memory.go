package fakeruntime

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// pipeSize is how much one direction of a connection in memory holds: the usual
// net.core.wmem_default.
const pipeSize = 212992

// backlog is the accept queue's limit: net.core.somaxconn's default.
const backlog = 4096

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

func (m *memory) listen() *memoryListener {
	l := &memoryListener{
		addr:   &net.UnixAddr{Name: m.name, Net: "unix"},
		queue:  make(chan net.Conn, backlog+1), // as Linux: one more than asked for
		closed: make(chan struct{}), interrupt: make(chan struct{}, 1),
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

// gone ends listening; dials then fail with failure.
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

func (m *memory) dialed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dials
}

// memoryListener has an accept queue as the kernel's: a connect succeeds as soon
// as there is room in it, whether the server accepts or not.
type memoryListener struct {
	addr      net.Addr
	queue     chan net.Conn
	interrupt chan struct{} // holds a token after SetDeadline
	closed    chan struct{}
	once      sync.Once
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
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	case <-l.interrupt:
		return nil, os.ErrDeadlineExceeded
	case c := <-l.queue:
		return c, nil
	}
}

// SetDeadline interrupts one Accept, with any deadline.
func (l *memoryListener) SetDeadline(time.Time) error {
	select {
	case l.interrupt <- struct{}{}:
	default:
	}
	return nil
}

// Close ends the listener and closes the connections in its queue.
func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
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
