package server

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// busyFor is how long a connection may be at one request before it has to make
// room for a new one: a hundred times what an answer takes.
const busyFor = 2 * time.Second

// spare is one in how many connections is kept for newcomers while all others are at
// work: they are told to come again.
const spare = 4

// connLimit bounds the connections that a server holds. When they are used up
// the newcomer takes the place of the one that has been idle for longest, so
// that thousands of idle connections cost neither file descriptors nor scrapes:
// a limit that made newcomers wait would leave Prometheus waiting behind them. Where
// as many as may be are at work, a newcomer is answered 429.
type connLimit struct {
	max, atWork int
	now         func() time.Time

	mu    sync.Mutex
	conns map[*limitedConn]struct{}
}

func newConnLimit(limit int) *connLimit {
	return &connLimit{max: limit, atWork: limit - limit/spare, now: time.Now, conns: make(map[*limitedConn]struct{})}
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

// handler answers 429 to a request for which there is no room, and h all others: 503
// is what /healthz says of a node that is NotReady.
func (c *connLimit) handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.room() {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		writeText(w, http.StatusTooManyRequests, func(w io.Writer) {
			fmt.Fprintf(w, "plegd answers at most %d requests at once; ask again in a second\n", c.atWork)
		})
	})
}

// room reports whether one more request may be worked at, which is among those at work
// already. The one that has been at work for longest makes room for it after busyFor.
func (c *connLimit) room() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var longest *limitedConn
	n := 0
	for conn := range c.conns {
		if !conn.active {
			continue
		}
		n++
		if longest == nil || conn.since.Before(longest.since) {
			longest = conn
		}
	}
	if n <= c.atWork {
		return true
	}
	if c.now().Sub(longest.since) < busyFor {
		return false
	}
	delete(c.conns, longest)
	_ = longest.Conn.Close()
	return true
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
