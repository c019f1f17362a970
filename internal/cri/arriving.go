package cri

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// So many bytes within so short a time are of a list, and of nothing else that
// plegd asks for.
const (
	bulkBytes  = 64 << 10
	bulkWithin = 500 * time.Millisecond
)

// frameType is the offset of the type in the header of a frame (RFC 9113, 4.1).
const frameType = 3

// arrivals notes when many bytes come in, so that a list in transfer does not count as
// hanging. It is called for each piece of each answer, and so allocates nothing.
type arrivals struct {
	from time.Time    // what last is counted from
	last atomic.Int64 // nanoseconds; 0 for never
	// single are the bytes of answers about single containers and sandboxes, which
	// are asked for by the hundred while a list hangs. They are no list.
	single atomic.Int64
}

// newArrivals returns arrivals that have seen nothing.
func newArrivals() *arrivals { return &arrivals{from: time.Now()} }

// watch returns conn with its bytes noted.
func (a *arrivals) watch(conn net.Conn) *watchedConn {
	return &watchedConn{Conn: conn, arrivals: a, closed: make(chan struct{})}
}

// at is when many bytes last came in, zero for never.
func (a *arrivals) at() time.Time {
	if d := a.last.Load(); d != 0 {
		return a.from.Add(time.Duration(d))
	}
	return time.Time{}
}

// watchedConn is read by one goroutine, gRPC's reader.
type watchedConn struct {
	net.Conn
	arrivals *arrivals
	began    time.Duration
	bytes    int
	single   int64       // arrivals.single when bytes was 0
	received atomic.Bool // anything at all
	settings atomic.Bool // and it began with a SETTINGS frame
	once     sync.Once
	closed   chan struct{} // closed by Close
}

// Read reads, and notes how much came.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		if !c.received.Load() {
			c.settings.Store(n > frameType && p[frameType] == byte(http2.FrameSettings))
			c.received.Store(true)
		}
		now := time.Since(c.arrivals.from)
		if now-c.began > bulkWithin {
			c.begin(now)
		}
		if c.bytes += n; c.bytes-int(c.arrivals.single.Load()-c.single) >= bulkBytes {
			c.arrivals.last.Store(max(1, int64(now)))
			c.begin(now)
		}
	}
	return n, err
}

// Write writes. Until the other end has sent its SETTINGS a failure is left to Read:
// a server that is none of gRPC's answers the first bytes, closes, and is written to
// once more. gRPC would tell of that write, and never read the answer, which alone
// proves what the other end is.
func (c *watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil && !c.settings.Load() {
		return len(p), nil
	}
	return n, err
}

// begin counts from now on.
func (c *watchedConn) begin(now time.Duration) {
	c.began, c.bytes, c.single = now, 0, c.arrivals.single.Load()
}

// Close closes the connection.
func (c *watchedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
