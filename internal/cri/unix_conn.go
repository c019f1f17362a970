package cri

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unixConn is a connection to a unix socket that wakes plegd up only for what comes in. Go's poller also
// asks when a socket can be written to, and the kernel tells that each time the other end has read.
type unixConn struct {
	address net.UnixAddr
	socket  int             // is not known to Go's poller
	arrived *os.File        // an epoll instance that can be read while the socket can
	use     syscall.RawConn // of arrived, which is closed when nothing uses the socket any more
	closed  atomic.Bool
}

// DialPath returns a dial of the unix socket at path, for Options.Dial.
func DialPath(path string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		c := &unixConn{address: net.UnixAddr{Name: path, Net: "unix"}}
		err := c.connect()
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: "unix", Addr: &c.address, Err: err}
		}
		return c, nil
	}
}

// connect connects. A connect(2) to a stream socket that does not block is made, refused, or finds the queue full.
func (c *unixConn) connect() error {
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	c.socket = socket
	err = os.NewSyscallError("connect", unix.Connect(socket, &unix.SockaddrUnix{Name: c.address.Name}))
	if err == nil {
		err = c.watch()
	}
	if err != nil {
		_ = unix.Close(socket) // nothing was written
	}
	return err
}

// watch makes the epoll instance.
func (c *unixConn) watch() error {
	poller, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	_ = unix.SetNonblock(poller, true) // so that Go's poller knows it
	c.arrived = os.NewFile(uintptr(poller), c.address.Name)
	arrivals := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP}
	err = os.NewSyscallError("epoll_ctl", unix.EpollCtl(poller, unix.EPOLL_CTL_ADD, c.socket, &arrivals))
	if err == nil {
		c.use, err = c.arrived.SyscallConn()
	}
	if err != nil {
		_ = c.arrived.Close() // nothing was written
	}
	return err
}

// Read waits until something has come. It reads by syscall, as package net does: so the race detector knows what was
// written before.
func (c *unixConn) Read(p []byte) (n int, err error) {
	refusal := c.use.Read(func(uintptr) bool {
		n, err = syscall.Read(c.socket, p)
		for errors.Is(err, unix.EINTR) {
			n, err = syscall.Read(c.socket, p)
		}
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case errors.Is(refusal, os.ErrDeadlineExceeded):
		return 0, refusal
	case refusal != nil, n == 0 && c.closed.Load():
		return 0, net.ErrClosed
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write writes all. While the other end does not read it waits in the kernel, until the connection is closed.
func (c *unixConn) Write(p []byte) (written int, err error) {
	refusal := c.use.Write(func(uintptr) bool {
		written, err = c.writeAll(p)
		return true
	})
	if refusal != nil {
		return 0, net.ErrClosed
	}
	return written, err
}

func (c *unixConn) writeAll(p []byte) (written int, err error) {
	for written < len(p) {
		n, err := syscall.Write(c.socket, p[written:])
		switch {
		case err == nil:
			written += n
		case errors.Is(err, unix.EAGAIN):
			wanted := []unix.PollFd{{Fd: int32(c.socket), Events: unix.POLLOUT}} //nolint:gosec // a descriptor
			_, _ = unix.Poll(wanted, -1)                                         // the next write shows why it ended
		case !errors.Is(err, unix.EINTR):
			return written, os.NewSyscallError("write", err)
		}
	}
	return written, nil
}

// Close ends each call that waits, and closes the socket.
func (c *unixConn) Close() error {
	c.closed.Store(true)
	refusal := c.use.Control(func(uintptr) { _ = unix.Shutdown(c.socket, unix.SHUT_RDWR) }) // a write returns
	if refusal != nil || c.arrived.Close() != nil {
		return net.ErrClosed
	}
	return os.NewSyscallError("close", unix.Close(c.socket))
}

// LocalAddr is empty, as of each client of a unix socket.
func (c *unixConn) LocalAddr() net.Addr { return &net.UnixAddr{Net: c.address.Net} }

// RemoteAddr is the path of the socket.
func (c *unixConn) RemoteAddr() net.Addr { return &c.address }

// SetDeadline sets the deadline of Read. Write has none: it waits only for an end that has not read for long.
func (c *unixConn) SetDeadline(t time.Time) error { return c.arrived.SetReadDeadline(t) }

// SetReadDeadline ends Read at a moment.
func (c *unixConn) SetReadDeadline(t time.Time) error { return c.arrived.SetReadDeadline(t) }

// SetWriteDeadline fails: there is none.
func (c *unixConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// peer returns the credentials of the process that called listen(2) on the unix socket at
// the other end, nil where they are not known.
func peer(conn net.Conn) *unix.Ucred {
	c, ok := conn.(*unixConn)
	if !ok {
		return nil
	}
	var cred *unix.Ucred
	_ = c.use.Control(func(uintptr) { // it fails for a closed connection, of which nothing is known
		cred, _ = unix.GetsockoptUcred(c.socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred
}
