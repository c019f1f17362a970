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
	"github.com/plegd/plegd/internal/logging"
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

// endpoint is an address that is served.
type endpoint struct {
	name   string // address or path
	listen func(context.Context) (net.Listener, error)
	serve  func(*http.Server, net.Listener) error
}

// Server serves a handler at some endpoints. It is a task.
type Server struct {
	what      string // what an endpoint is, for the log
	endpoints []endpoint
	maxConns  int // per endpoint; further ones wait
	handler   http.Handler
	log       *zap.Logger
	retry     time.Duration
	ready     chan struct{}

	mu     sync.Mutex
	at     time.Time // of the last change; zero before the first attempt
	addrs  map[string]net.Addr
	failed map[string]string // endpoint: error
}

func newServer(what string, maxConns int, h http.Handler, log *zap.Logger) *Server {
	return &Server{
		what: what, maxConns: maxConns, handler: h, log: log, retry: retryInterval, ready: make(chan struct{}),
		addrs: map[string]net.Addr{}, failed: map[string]string{},
	}
}

// String names the task.
func (s *Server) String() string { return "server of the " + s.what }

// Ready is closed after the first attempt at every endpoint: a busy port must not
// keep the daemon from starting.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addrs returns the addresses that are being served, in no order.
func (s *Server) Addrs() []net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.addrs))
}

// Source reports whether every endpoint is served, and if not, why; ok is false
// before the first attempt.
func (s *Server) Source() (health.Source, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var why []string
	for _, name := range slices.Sorted(maps.Keys(s.failed)) {
		why = append(why, s.failed[name])
	}
	return health.Source{Up: len(why) == 0, At: s.at, Err: strings.Join(why, "; ")}, !s.at.IsZero()
}

// Run serves until ctx is done, and then returns nil. An endpoint that cannot be
// served is logged once and retried.
func (s *Server) Run(ctx context.Context) error {
	var tried, done sync.WaitGroup
	tried.Add(len(s.endpoints))
	for _, e := range s.endpoints {
		done.Go(func() { s.keep(ctx, e, sync.OnceFunc(tried.Done)) })
	}
	tried.Wait()
	close(s.ready)
	<-ctx.Done()
	done.Wait()
	return nil
}

// keep serves an endpoint until ctx is done; tried is called after the first attempt.
func (s *Server) keep(ctx context.Context, e endpoint, tried func()) {
	defer tried()
	var failed logging.OnChange[string] // the last error
	for {
		l, err := e.listen(ctx)
		if err == nil {
			failed.Set("")
			s.set(e.name, l.Addr(), nil)
			tried()
			s.log.Info("serving the "+s.what, zap.String("address", l.Addr().String()))
			err = s.serve(ctx, e, l)
		}
		if ctx.Err() != nil {
			s.set(e.name, nil, nil)
			return
		}
		s.set(e.name, nil, err)
		tried()
		if _, changed := failed.Set(err.Error()); changed {
			s.log.Warn("the "+s.what+" cannot be served; plegd runs on and tries again",
				zap.String("address", e.name), zap.Duration("every", s.retry), zap.Error(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(s.retry):
		}
	}
}

// set records that an endpoint is served at addr, or that it is not.
func (s *Server) set(name string, addr net.Addr, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = time.Now()
	delete(s.addrs, name)
	delete(s.failed, name)
	if addr != nil {
		s.addrs[name] = addr
	}
	if err != nil {
		s.failed[name] = err.Error()
	}
}

// serve serves l until ctx is done or l breaks. Everything that a client can make
// last or grow is bounded; answers in flight may finish for a moment at the end.
func (s *Server) serve(ctx context.Context, e endpoint, l net.Listener) error {
	defer func() { _ = l.Close() }()
	errorLog, _ := zap.NewStdLogAt(s.log, zap.DebugLevel) // fails only for an unknown level
	server := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: errorLog,
	}
	stopped := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	})
	err := e.serve(server, netutil.LimitListener(l, s.maxConns))
	if !cancel() {
		<-stopped
	}
	_ = server.Close()
	return err
}
