package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// busyFor is how long a connection may be at one request before it has to make
// room for a new one: a hundred times what an answer takes.
const busyFor = 2 * time.Second

// connLimit bounds the connections that a server holds. When they are used up
// the newcomer takes the place of the one that has been idle for longest, so
// that thousands of idle connections cost neither file descriptors nor scrapes:
// a limit that made newcomers wait would leave Prometheus waiting behind them.
type connLimit struct {
	max int
	now func() time.Time

	mu    sync.Mutex
	conns map[*limitedConn]struct{}
}

func newConnLimit(limit int) *connLimit {
	return &connLimit{max: limit, now: time.Now, conns: make(map[*limitedConn]struct{})}
}

// listener returns l under the limit. Several listeners may share it.
func (c *connLimit) listener(l net.Listener) net.Listener {
	return &limitedListener{Listener: l, limit: c}
}

// add takes conn in, and returns the connection to close for it, if any: an
// older one, or conn itself where all are at work.
func (c *connLimit) add(conn *limitedConn) *limitedConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) < c.max {
		c.conns[conn] = struct{}{}
		return nil
	}
	var victim *limitedConn
	for old := range c.conns {
		if old.active && c.now().Sub(old.since) < busyFor {
			continue
		}
		if victim == nil || worse(old, victim) {
			victim = old
		}
	}
	if victim == nil {
		return conn
	}
	delete(c.conns, victim)
	c.conns[conn] = struct{}{}
	return victim
}

// worse reports whether a has less of a right to stay than b.
func worse(a, b *limitedConn) bool {
	if a.active != b.active {
		return !a.active
	}
	return a.since.Before(b.since)
}

func (c *connLimit) remove(conn *limitedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, conn)
}

// stateChanged is an http.Server's ConnState.
func (c *connLimit) stateChanged(conn net.Conn, state http.ConnState) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	l, ok := conn.(*limitedConn)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l.active = state == http.StateActive
	l.since = c.now()
}

type limitedListener struct {
	net.Listener
	limit *connLimit
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		lc := &limitedConn{Conn: conn, limit: l.limit, since: l.limit.now()}
		victim := l.limit.add(lc)
		if victim != nil {
			_ = victim.Conn.Close()
			// Its goroutines end now: a flood of connections would else be accepted
			// ahead of them, and hundreds wait for their turn.
			runtime.Gosched()
		}
		if victim != lc {
			return lc, nil
		}
	}
}

type limitedConn struct {
	net.Conn
	limit *connLimit

	// active and since, the time of its last change, are guarded by limit.mu.
	active bool
	since  time.Time
}

func (c *limitedConn) Close() error {
	c.limit.remove(c)
	return c.Conn.Close()
}
