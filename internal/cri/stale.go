package cri

import (
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/plegd/plegd/internal/health"
)

// staleEvery is the time between two checks of a connection that waits to be
// accepted.
const staleEvery = time.Second

// endStale gives up a connection that can never be accepted: it is in the accept queue
// of a listener whose path now leads to another socket. The kernel usually ends such
// connections when the runtime dies, but not while another process holds a copy of
// the listener's descriptor, as a child does between fork and exec. It returns when the
// connection is accepted or closed: the kubelet, too, keeps an accepted connection.
//
// So each listener gets one connection, and a runtime that is stuck gets no second one.
func (c *Client) endStale(conn *grpc.ClientConn, s *watchedConn, path string, socket os.FileInfo) {
	timer := time.NewTicker(staleEvery)
	defer timer.Stop()
	for {
		select {
		case <-s.closed:
			return
		case <-timer.C:
		}
		if s.received.Load() {
			return
		}
		if replaced(path, socket) {
			c.giveUp(conn)
			return
		}
	}
}

// replaced reports whether another socket is at the path now. A path without a
// socket does not count: there is nothing to connect to instead.
func replaced(path string, socket os.FileInfo) bool {
	if socket == nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && now.Mode()&os.ModeSocket != 0 && !os.SameFile(socket, now)
}

// giveUp replaces a connection. Its calls end with Unavailable.
func (c *Client) giveUp(conn *grpc.ClientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.conn != conn {
		return
	}
	fresh, err := c.newConn(c.path)
	if err != nil {
		return // it is tried again with the next connection
	}
	c.socket.Store(nil)
	c.conn = fresh
	_ = conn.Close()
}

// closingText is grpc-go's error for a call whose connection this process closes.
const closingText = "the client connection is closing"

// failure turns a failed call's error into plain values. A call whose connection
// was given up was not canceled: it has got no answer.
func (c *Client) failure(op string, err error) *health.CallError {
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
