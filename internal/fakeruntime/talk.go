package fakeruntime

import (
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
)

// talk treats a new connection as the fault says: it is gRPC's, or it is spoken
// to here until the client closes it, the fault is replaced, or the server stops.
func (l *faultListener) talk(c *faultConn, t Term, reset <-chan struct{}) {
	switch t.kind {
	case kindClose:
		_ = c.Close()
	case kindNoSettings:
		l.linger(c, reset, nil)
	case kindSettingsOnly:
		// An empty SETTINGS frame: length 0, type 4, no flags, stream 0.
		l.linger(c, reset, []byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
	case kindGarbage:
		l.linger(c, reset, garbage())
	case kindHTTP1:
		stop := l.closeOn(c, reset)
		serveHTTP1(c, http.NotFoundHandler())
		stop()
	case kindSpeakSecond:
		l.deliver(c, l.toMux)
	default:
		if l.speakSecond() {
			l.deliver(c, l.toMux)
			return
		}
		l.deliver(c, l.out)
	}
}

// linger says something, or nothing, and then only reads.
func (l *faultListener) linger(c *faultConn, reset <-chan struct{}, say []byte) {
	stop := l.closeOn(c, reset)
	defer stop()
	if _, err := c.Write(say); err == nil {
		_, _ = io.Copy(io.Discard, c)
	}
	_ = c.Close()
}

// closeOn closes a connection when the fault is replaced, until stop is called.
func (l *faultListener) closeOn(c *faultConn, reset <-chan struct{}) (stop func()) {
	done := make(chan struct{})
	l.wg.Go(func() {
		select {
		case <-reset:
			_ = c.Close()
		case <-done:
		}
	})
	return func() { close(done) }
}

// criInfo is CRI-O's /info, as far as anybody looks at it.
func criInfo(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != "/info" {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{
		"storage_driver": "overlay", "storage_root": "/var/lib/containers/storage", "cgroup_driver": "systemd",
	})
}

// serveHTTP1 serves one connection until it is closed.
func serveHTTP1(c net.Conn, h http.Handler) {
	l := &oneConn{conn: c, closed: make(chan struct{})}
	srv := &http.Server{
		Handler:  h,
		ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				_ = l.Close()
			}
		},
	}
	// It returns when the one connection is closed, always with an error.
	_ = srv.Serve(l)
	_ = c.Close()
}

// oneConn is a listener with one connection.
type oneConn struct {
	mu     sync.Mutex
	conn   net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *oneConn) Accept() (net.Conn, error) {
	l.mu.Lock()
	c := l.conn
	l.conn = nil
	l.mu.Unlock()
	if c != nil {
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }
