package critest

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"sync"

	"golang.org/x/net/http2"
)

// talk treats a new connection as the fault says: it is gRPC's, or it is spoken
// to here until the client closes it, the fault is set anew, or the server stops.
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
		l.speakAfterClient(c)
	default:
		if l.speakSecond {
			l.speakAfterClient(c)
			return
		}
		l.deliver(c)
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

// closeOn closes a connection when the fault is set anew, until stop is called.
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

// speakAfterClient does what cmux does in front of CRI-O's gRPC server: it reads
// the client's preface, answers its SETTINGS with empty ones, and reads on until
// HEADERS show that gRPC is meant; only then does the gRPC server get the
// connection, with everything that was read. So a client that waits for the
// server to speak first waits for ever, and a PING before HEADERS is not answered.
func (l *faultListener) speakAfterClient(c *faultConn) {
	var seen bytes.Buffer
	client := io.TeeReader(c, &seen)
	replay := func() net.Conn { return &replayConn{Conn: c, r: io.MultiReader(&seen, c)} }

	preface := []byte(http2.ClientPreface)
	one := make([]byte, 1)
	for i := range preface {
		if _, err := io.ReadFull(client, one); err != nil {
			_ = c.Close()
			return
		}
		if one[0] != preface[i] {
			serveHTTP1(replay(), http.HandlerFunc(criInfo))
			return
		}
	}
	framer := http2.NewFramer(c, client)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			_ = c.Close()
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if f.IsAck() {
				continue
			}
			if err := framer.WriteSettings(); err != nil {
				_ = c.Close()
				return
			}
		case *http2.HeadersFrame:
			l.deliver(replay())
			return
		}
	}
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

// replayConn reads first what was read before.
type replayConn struct {
	net.Conn
	r io.Reader
}

func (c *replayConn) Read(p []byte) (int, error) { return c.r.Read(p) }

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
