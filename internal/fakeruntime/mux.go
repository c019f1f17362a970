package fakeruntime

import (
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/soheilhy/cmux"
)

// mux is what CRI-O has in front of its gRPC server (cmd/crio/main.go): cmux,
// which reads the client's preface, SETTINGS and HEADERS and then decides who
// serves the connection. So CRI-O sends nothing before the client has spoken,
// answers no PING before the first HEADERS, serves gRPC only where the
// content-type is exactly "application/grpc", and serves /info over HTTP/1.1.
// It is the real cmux, with CRI-O's own matchers.
type mux struct {
	cmux cmux.CMux
	grpc net.Listener
	http *http.Server
	done chan struct{}
}

// newMux serves connections that the listener hands to cmux, except those for
// gRPC, which the caller accepts from grpc.
func newMux(l *faultListener) *mux {
	m := &mux{cmux: cmux.New(muxListener{l}), done: make(chan struct{})}
	m.grpc = m.cmux.MatchWithWriters(cmux.HTTP2MatchHeaderFieldSendSettings("content-type", "application/grpc"))
	web := m.cmux.Match(cmux.HTTP1Fast())
	m.http = &http.Server{Handler: http.HandlerFunc(criInfo), ReadTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = m.http.Serve(web) // it ends with the listener
	}()
	go func() {
		defer close(m.done)
		_ = m.cmux.Serve()
		<-served
	}()
	return m
}

// wait waits until cmux and the HTTP server have ended, once the listener and
// its connections are closed.
func (m *mux) wait() {
	_ = m.http.Close()
	<-m.done
}

// muxListener is the part of a faultListener that cmux accepts from.
type muxListener struct{ l *faultListener }

// Accept returns the next connection for cmux.
func (m muxListener) Accept() (net.Conn, error) {
	select {
	case c := <-m.l.toMux:
		return c, nil
	case <-m.l.closed:
		return nil, net.ErrClosed
	}
}

// Addr returns the address of the listener.
func (m muxListener) Addr() net.Addr { return m.l.Addr() }

// Close closes the listener.
func (m muxListener) Close() error { return m.l.Close() }
