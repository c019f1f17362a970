// Package server serves plegd over HTTP: on TCP, and on the control socket that
// only its owner can open. It has the client of both.
//
// A handler reads what a Source has published: it never calls the runtime, never
// waits for a relist and takes no lock that the relist loop waits for. No request
// changes anything.
package server

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"

	"github.com/plegd/plegd/internal/health"
)

const (
	// retryInterval is the time between two attempts to listen.
	retryInterval = 5 * time.Second
	// shutdownGrace is how long answers in flight may take at a stop.
	shutdownGrace = 500 * time.Millisecond
	// readTimeout and idleTimeout end connections that send nothing, so that they
	// do not hold their place below the connection limit.
	readTimeout, idleTimeout = 5 * time.Second, 5 * time.Second
	writeTimeout             = 10 * time.Second
	maxHeaderBytes           = 16 << 10
)

// newServer returns an HTTP server with bounds on everything that a client can
// make last or grow.
func newServer(h http.Handler, log *zap.Logger) *http.Server {
	errorLog, _ := zap.NewStdLogAt(log, zap.DebugLevel) // fails only for an unknown level
	return &http.Server{
		Handler: h, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: errorLog,
	}
}

// limited returns l with at most n open connections; further ones wait.
func limited(l net.Listener, n int) net.Listener { return netutil.LimitListener(l, n) }

// stop ends a server: answers in flight may finish for a moment.
func stop(s *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if s.Shutdown(ctx) != nil {
		_ = s.Close()
	}
}

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// serving is the state of a server's addresses: a busy port is exported.
type serving struct {
	mu     sync.Mutex
	at     time.Time         // of the last change; zero before the first attempt
	failed map[string]string // address: error
}

// set records that an address is served (err is nil) or cannot be.
func (s *serving) set(address string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = time.Now()
	if err == nil {
		delete(s.failed, address)
		return
	}
	if s.failed == nil {
		s.failed = map[string]string{}
	}
	s.failed[address] = err.Error()
}

// Source reports whether every address is served, and if not, why; ok is false
// before the first attempt.
func (s *serving) Source() (health.Source, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var why []string
	for _, address := range slices.Sorted(maps.Keys(s.failed)) {
		why = append(why, s.failed[address])
	}
	return health.Source{Up: len(why) == 0, At: s.at, Err: strings.Join(why, "; ")}, !s.at.IsZero()
}
