package server

import (
	"context"
	"net/http"
	"time"

	"go.uber.org/zap"
)

const (
	// retryEvery is how long to wait before listening again where it failed.
	retryEvery = 5 * time.Second
	// shutdownGrace is how long answers under way may still take at a stop.
	shutdownGrace = 500 * time.Millisecond
)

// newServer returns an HTTP server with bounds on everything that a client can
// make last or grow. Answers are small and made in milliseconds; a client that
// needs longer than this is stuck or means ill.
func newServer(h http.Handler, conns *connLimit, log *zap.Logger) *http.Server {
	errorLog, _ := zap.NewStdLogAt(log, zap.DebugLevel) // fails only for an unknown level
	return &http.Server{
		Handler:           conns.handler(h),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		// Two scrapes a minute apart share one connection.
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
		ConnState:      conns.stateChanged,
		// One line for each port scan would drown what matters.
		ErrorLog: errorLog,
	}
}

// stop ends a server: what is under way may finish for a moment, then the
// connections are closed.
func stop(s *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if s.Shutdown(ctx) != nil {
		_ = s.Close()
	}
}

// sleep waits for d or for the end of ctx, and reports whether ctx continues.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
