package cri

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// bulkBytes within bulkWithin belong to a list: no other answer that plegd asks for is as large.
const (
	bulkBytes  = 64 << 10
	bulkWithin = 500 * time.Millisecond
)

// frameType is the offset of the type in the header of a frame (RFC 9113, 4.1).
const frameType = 3

// arrivals notes when many bytes come in, so that a list in transfer does not count as
// hanging.
type arrivals struct {
	last atomic.Pointer[time.Time]
	// single are the bytes of answers about single containers and sandboxes, which
	// are asked for by the hundred while a list hangs. They are no list.
	single atomic.Int64
}

// watchedConn is read by one goroutine, gRPC's reader.
type watchedConn struct {
	net.Conn
	arrivals *arrivals
	began    time.Time
	bytes    int64       // received since began
	single   int64       // arrivals.single at began
	received atomic.Bool // anything at all
	settings atomic.Bool // and it began with a SETTINGS frame
	closed   context.CancelFunc
}

// Read reads, and notes how much came.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 {
		return n, err
	}
	if !c.received.Load() {
		c.settings.Store(n > frameType && p[frameType] == byte(http2.FrameSettings))
		c.received.Store(true)
	}
	arrived := time.Now()
	single := c.arrivals.single.Load()
	if arrived.Sub(c.began) > bulkWithin {
		c.began = arrived
		c.bytes = 0
		c.single = single
	}
	c.bytes += int64(n)
	if c.bytes-(single-c.single) >= bulkBytes {
		c.arrivals.last.Store(&arrived)
		c.began = time.Time{}
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

// Close closes the connection.
func (c *watchedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
