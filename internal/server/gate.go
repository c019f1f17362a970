package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/bounded"
)

const (
	// maxWebConns is the number of open connections per address, and maxClientConns that of one
	// client. A connection beyond it closes another connection that is older than its grace time.
	maxWebConns    = 48
	maxClientConns = 32
	// silentGrace is the time in which a client can make its request. 130 connections a second of
	// one client stay below maxClientConns in it.
	silentGrace = 200 * time.Millisecond
	// activeGrace is the time in which a request is answered and read.
	activeGrace = 2 * time.Second
	// maxYoungConns is the number of open connections beyond which no grace time counts.
	maxYoungConns = 64
	// maxGreetings is the number of connections that are awaited or about to end: those of a flood
	// that have been closed must end before more are accepted.
	maxGreetings = maxYoungConns + 32
	// acceptRetry is the pause after a failed accept(2), such as one without a free descriptor.
	acceptRetry = 20 * time.Millisecond
	// tlsHandshake is the first byte of a TLS connection (RFC 8446, 5.1).
	tlsHandshake = 0x16
)

// gate is a listener whose connections no client can occupy. It accepts every connection at
// once and, beyond its limits, closes the oldest connection of the client that has the most,
// one without a request if there is one. The first byte of a request makes a connection new
// again, once: a probe that has asked is not the oldest of a burst of silent connections. A
// connection is returned by Accept after its first byte.
type gate struct {
	listener net.Listener
	// config returns the settings for TLS.
	config  func(context.Context) (*webSettings, error)
	refused func()
	log     *zap.Logger

	accepted chan net.Conn
	done     chan struct{}
	close    func() error

	mu    sync.Mutex
	conns map[*gateConn]struct{}
}

func newGate(l net.Listener, config func(context.Context) (*webSettings, error), refused func(), log *zap.Logger) *gate {
	g := &gate{
		listener: l, config: config, refused: refused, log: log,
		accepted: make(chan net.Conn), done: make(chan struct{}), conns: map[*gateConn]struct{}{},
	}
	if err := awaitRequests(l); err != nil {
		log.Warn("silent connections to the web address are not kept back", zap.Stringer("address", l.Addr()), zap.Error(err))
	}
	g.close = sync.OnceValue(func() error {
		close(g.done)
		return l.Close()
	})
	return g
}

// awaitRequests makes the kernel keep a connection back until bytes have come, or until
// headerTimeout is over (TCP_DEFER_ACCEPT, tcp(7)): clients that only connect do not displace those
// that ask, however fast they come back.
func awaitRequests(l net.Listener) error {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var refusal error
	err = raw.Control(func(fd uintptr) {
		refusal = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, int(headerTimeout.Seconds()))
	})
	return errors.Join(err, refusal)
}

// run accepts connections until ctx is done or the listener is closed.
func (g *gate) run(ctx context.Context) {
	var greetings sync.WaitGroup
	defer greetings.Wait()
	defer g.closeAll()
	defer func() { _ = g.Close() }()
	slots := make(chan struct{}, maxGreetings)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := g.listener.Accept()
		if err != nil {
			<-slots
		}
		switch {
		case err == nil:
			c := g.admit(conn)
			greetings.Go(func() {
				defer func() { <-slots }()
				g.greet(ctx, c)
			})
		case errors.Is(err, net.ErrClosed):
			return
		case !bounded.Sleep(ctx, acceptRetry):
			return
		}
	}
}

// Accept returns the next connection that has sent its first byte.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case conn := <-g.accepted:
		return conn, nil
	case <-g.done:
		return nil, net.ErrClosed
	}
}

// Close closes the listener, but no connection.
func (g *gate) Close() error { return g.close() }

// Addr returns the listener's address.
func (g *gate) Addr() net.Addr { return g.listener.Addr() }

// admit counts a connection, and closes another one if it is one too many.
func (g *gate) admit(conn net.Conn) *gateConn {
	c := &gateConn{Conn: conn, gate: g, client: clientOf(conn.RemoteAddr().String()), changedAt: time.Now()}
	g.mu.Lock()
	victim := g.victim(c.client)
	g.conns[c] = struct{}{}
	g.mu.Unlock()
	if victim != nil {
		g.log.Warn("too many connections to the web address; the oldest of the client with the most is closed",
			zap.Stringer("address", g.Addr()), zap.Stringer("client", victim.client),
			zap.Int("limit", maxWebConns), zap.Int("limit_per_client", maxClientConns))
		g.refused()
		_ = victim.Close()
	}
	return c
}

// victim returns the connection to close before another one of a client is added; nil if the
// limits allow one more.
func (g *gate) victim(client netip.Prefix) *gateConn {
	count := map[netip.Prefix]int{}
	largest := 0
	full := len(g.conns) >= maxYoungConns
	for c := range g.conns {
		count[c.client]++
		largest = max(largest, count[c.client])
	}
	tooMany := count[client] >= maxClientConns
	if !tooMany && len(g.conns) < maxWebConns {
		return nil
	}
	var candidates []*gateConn
	for c := range g.conns {
		wanted := count[c.client] == largest
		if tooMany {
			wanted = c.client == client
		}
		if wanted && (full || c.outstays()) {
			candidates = append(candidates, c)
		}
	}
	return oldest(candidates)
}

// closeAll closes the connections that the HTTP server does not know yet.
func (g *gate) closeAll() {
	g.mu.Lock()
	var all []*gateConn
	for c := range g.conns {
		all = append(all, c)
	}
	g.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

// greet waits for the first byte of a connection, and hands it to Accept.
func (g *gate) greet(ctx context.Context, c *gateConn) {
	conn, err := g.identify(ctx, c)
	if err != nil {
		_ = c.Close()
		return
	}
	select {
	case g.accepted <- conn:
	case <-g.done:
		_ = c.Close()
	}
}

// identify reads the first byte of a connection, which tells TLS from plain text.
func (g *gate) identify(ctx context.Context, c *gateConn) (net.Conn, error) {
	if err := c.SetReadDeadline(time.Now().Add(headerTimeout)); err != nil {
		return nil, err
	}
	first := make([]byte, 1)
	if _, err := c.Conn.Read(first); err != nil {
		return nil, err
	}
	c.first = first
	c.gate.mu.Lock()
	c.ask()
	c.gate.mu.Unlock()
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	settings, err := g.config(ctx)
	if err != nil && settings == nil {
		return nil, err
	}
	if settings.tls == nil || first[0] != tlsHandshake {
		return c, nil
	}
	return tls.Server(c, settings.tls), nil
}

// state follows the state of a connection. It is a http.Server's ConnState.
func (g *gate) state(conn net.Conn, state http.ConnState) {
	c := gated(conn)
	if c == nil || state == http.StateClosed {
		return // Close has removed it
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	active := state == http.StateActive
	if active != c.active {
		c.active = active
		c.asked = false
		c.changedAt = time.Now()
	}
}

// gated returns the gate's own connection of one that it has accepted.
func gated(conn net.Conn) *gateConn {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	c, _ := conn.(*gateConn)
	return c
}
