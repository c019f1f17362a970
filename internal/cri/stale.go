package cri

import (
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/plegd/plegd/internal/beat"
)

const (
	// staleEvery is the most time between two looks at a connection to a unix socket.
	staleEvery = time.Second
	// staleAfter is how long the oldest call must have been under way.
	staleAfter = time.Second
)

// peer is what a connection to a unix socket led to when it was made.
type peer struct {
	path   string
	socket os.FileInfo // of the socket's file before connect(2), nil if unknown
	pidfd  int         // of the process that called listen(2), -1 if unknown
	gone   bool        // that process had ended already
}

// peerOf returns the peer of a connection that has just been made.
func peerOf(path string, socket os.FileInfo, pid int) *peer {
	p := &peer{path: path, socket: socket, pidfd: -1}
	if pid > 0 {
		fd, err := unix.PidfdOpen(pid, 0)
		if err == nil {
			p.pidfd = fd
		}
		p.gone = err == unix.ESRCH
	}
	return p
}

func (p *peer) close() {
	if p.pidfd >= 0 {
		_ = unix.Close(p.pidfd)
	}
}

// replaced reports whether another socket is at the path now. A path without a
// socket does not count: there is nobody to connect to instead.
func (p *peer) replaced() bool {
	if p.socket == nil {
		return false
	}
	now, err := os.Stat(p.path)
	return err == nil && now.Mode()&os.ModeSocket != 0 && !os.SameFile(p.socket, now)
}

// ended reports whether the process that called listen(2) has ended.
func (p *peer) ended() bool {
	if p.pidfd < 0 {
		return p.gone
	}
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// endStale gives up a connection that can never be answered, and returns when
// the connection is closed. The kernel usually ends such a connection when the
// runtime dies. It does not while another process holds a copy of the runtime's
// descriptors, as a child does between fork and exec, which takes long when
// memory is short: then a connection in the old listener's accept queue stays
// there, and a connection that was accepted stays open.
//
// A connection is only given up where another socket is at the path. So each
// listener gets one connection, and a runtime that is stuck gets no second one.
func (c *Client) endStale(conn *grpc.ClientConn, s *watchedConn, p *peer) {
	defer p.close()
	timer := time.NewTimer(beat.After(staleEvery))
	defer timer.Stop()
	for ; ; timer.Reset(beat.After(staleEvery)) {
		select {
		case <-s.closed:
			return
		case <-timer.C:
		}
		waits := !s.received.Load() // in the accept queue
		if (waits || c.unanswered(staleAfter) && p.ended()) && p.replaced() {
			c.giveUp(conn)
			return
		}
	}
}

// unanswered reports whether a call has been under way for at least d.
func (c *Client) unanswered(d time.Duration) bool {
	for _, t := range c.trackers {
		if since := t.history().InFlightSince; !since.IsZero() && time.Since(since) >= d {
			return true
		}
	}
	return false
}

// giveUp replaces a connection. Its calls end with Unavailable.
func (c *Client) giveUp(conn *grpc.ClientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.conn != conn {
		return
	}
	fresh, err := c.newConn()
	if err != nil {
		return // it is tried again with the next connection
	}
	c.socket.Store(nil)
	c.conn = fresh
	_ = conn.Close()
}

// closingText is grpc-go's word for a call whose connection this process closes.
const closingText = "the client connection is closing"

// failure turns a failed call's error into plain values. A call whose connection
// was given up was not canceled: it has got no answer.
func (c *Client) failure(op Operation, err error) *Error {
	e := errorOf(op, err)
	if e.Code != CodeCanceled || !strings.Contains(e.Message, closingText) {
		return e
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		e.Code, e.Message = CodeUnavailable, "the connection was given up: another runtime listens at the path"
	}
	return e
}

// statSocket returns the file of a socket, nil where there is none.
func statSocket(path string) os.FileInfo {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

// Close closes the connection.
func (c *watchedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// isUnix reports whether a connection leads to a unix socket.
func isUnix(conn net.Conn) bool {
	_, ok := conn.(*net.UnixConn)
	return ok
}
