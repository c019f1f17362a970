package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/viewtest"
)

// TestIdleFlood opens thousands of connections that say nothing, and some that
// drip a request, and scrapes.
func TestIdleFlood(t *testing.T) {
	s, _ := newTestWeb(t, WebOptions{Addresses: []string{"127.0.0.1:0"}}, viewtest.NewSource(viewtest.Healthy()))
	start(t, s)
	eventually(t, "served", func() bool { return len(s.Addrs()) == 1 })
	address := s.Addrs()[0].String()
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for i := range 1500 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		if i%10 == 0 {
			fmt.Fprint(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n")
		}
	}
	client := &http.Client{Timeout: 2 * time.Second}
	for range 3 {
		code, body, err := get(client, "http://"+address+view.PathMetrics, nil)
		if err != nil || code != http.StatusOK || !strings.Contains(body, exporter.MetricHealthy) {
			t.Errorf("a scrape in the flood: %d, %v", code, err)
		}
	}
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	if n := len(s.conns.conns); n > maxWebConns {
		t.Errorf("%d connections held, more than %d", n, maxWebConns)
	}
}

// TestFloodOfGoroutines: thousands of connections wait when the server comes to
// accept them, on one core, and those that had to go have ended before many
// more are taken in.
func TestFloodOfGoroutines(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	conns := newConnLimit(maxWebConns)
	l := &floodListener{left: 3000, before: runtime.NumGoroutine()}
	server := newServer(http.NotFoundHandler(), conns, zap.NewNop())
	_ = server.Serve(conns.listener(l)) // until the flood is over
	_ = server.Close()
	if limit := 3 * maxWebConns; l.most > limit {
		t.Errorf("%d goroutines for at most %d connections, want at most %d", l.most, maxWebConns, limit)
	}
}

// floodListener has a new connection whenever it is asked, left times, and looks
// how many goroutines there are more than before.
type floodListener struct{ left, before, most int }

func (l *floodListener) Accept() (net.Conn, error) {
	l.most = max(l.most, runtime.NumGoroutine()-l.before)
	if l.left--; l.left < 0 {
		return nil, net.ErrClosed
	}
	c, _ := net.Pipe()
	return c, nil
}

func (*floodListener) Close() error   { return nil }
func (*floodListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestAllAtWork: as many requests are under way as may be. Whoever comes is told to come
// again, and after busyFor takes the place of the one that takes longest.
func TestAllAtWork(t *testing.T) {
	conns := newConnLimit(8)
	var later atomic.Int64
	conns.now = func() time.Time { return viewtest.T0.Add(time.Duration(later.Load())) }
	entered, release := make(chan struct{}), make(chan struct{})
	server := newServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			entered <- struct{}{}
			<-release
		}
	}), conns, zap.NewNop())
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(conns.listener(l)) }()
	defer func() { _ = server.Close() }()
	defer close(release)
	ended := make(chan error, conns.atWork)
	for range conns.atWork {
		go func() {
			_, _, err := get(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "http://"+l.Addr().String()+"/slow", nil)
			ended <- err
		}()
		<-entered
	}
	// Each is waited for until it is closed: one that is answered counts until then.
	ask := func() string {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: plegd\r\nConnection: close\r\n\r\n")
		answer, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		return string(answer)
	}
	for range 3 * conns.max {
		if answer := ask(); !strings.HasPrefix(answer, "HTTP/1.1 429 ") || !strings.Contains(answer, "at most 6 requests") {
			t.Fatalf("while all are at work: %q", answer)
		}
	}
	later.Store(int64(busyFor))
	if answer := ask(); !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
		t.Errorf("after %s: %q", busyFor, answer)
	}
	if err := <-ended; err == nil {
		t.Error("the one that took longest was answered")
	}
}

func TestConnLimit(t *testing.T) {
	now := viewtest.T0
	c := newConnLimit(3)
	c.now = func() time.Time { return now }
	conn := func() *limitedConn {
		now = now.Add(time.Millisecond)
		return &limitedConn{limit: c, since: now}
	}
	a, b, d, e, f, g := conn(), conn(), conn(), conn(), conn(), conn()
	for _, x := range []*limitedConn{a, b, d} {
		if victim := c.add(x); victim != nil {
			t.Fatal("a connection was closed before the limit")
		}
	}
	c.stateChanged(a, http.StateActive)
	if victim := c.add(e); victim != b {
		t.Error("not the connection that was idle for longest had to go")
	}
	for _, x := range []*limitedConn{d, e} {
		now = now.Add(time.Millisecond)
		c.stateChanged(x, http.StateActive)
	}
	if victim := c.add(f); victim != f {
		t.Error("the newcomer was let in while all the others are at work")
	}
	now = now.Add(busyFor)
	if victim := c.add(g); victim != a {
		t.Error("not the connection that was busy for longest had to go")
	}
	c.remove(d)
	if victim := c.add(f); victim != nil {
		t.Error("a connection was closed in spite of room")
	}
}
