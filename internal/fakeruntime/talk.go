package fakeruntime

import (
	"encoding/json"
	"io"
	"net/http"
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
		l.talkHTTP1(c, reset)
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

// talkHTTP1 answers a request, or the preface of HTTP/2, as a server of HTTP/1.1 does.
func (l *faultListener) talkHTTP1(c *faultConn, reset <-chan struct{}) {
	stop := l.closeOn(c, reset)
	defer stop()
	if _, err := c.Read(make([]byte, 4096)); err == nil {
		_, _ = io.WriteString(c, "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n404 page not found\n")
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
