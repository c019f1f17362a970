// Package server serves plegd over HTTP: on TCP, and on the control socket that
// only its owner can open. It has the client of both.
//
// A handler reads what a Source has published: it never calls the runtime, never
// waits for a relist and takes no lock that the relist loop waits for. No request
// changes anything.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/net/netutil"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/facts"
)

const (
	maxControlConns = 8               // open connections to the control socket; further ones wait
	retryInterval   = 5 * time.Second // between two attempts to listen
	headerTimeout   = time.Second     // of the first byte, a TLS handshake, and a request's header
	readTimeout     = 5 * time.Second // of a whole request, and of idle connections
	writeTimeout    = 10 * time.Second
	maxHeaderBytes  = 16 << 10
)

// endpoint is an address that is served.
type endpoint struct {
	name   string // address or path
	listen func(context.Context) (net.Listener, error)
	err    error // of the last attempt; below Server.mu
}

// Server serves a handler at some endpoints. It is a task.
type Server struct {
	what      string   // what an endpoint is, for the log
	web       *webFile // settings of TLS and authentication; nil for the control socket
	refused   func()   // counts a connection that was closed for the limits
	handler   http.Handler
	log       *zap.Logger
	sampled   *zap.Logger // log for what clients repeat; nil for the control socket
	endpoints []*endpoint
	retry     time.Duration
	ready     chan struct{}

	mu      sync.Mutex
	changed time.Time // zero before the first attempt
}

// Ready is closed after the first attempt at every endpoint: a busy port must not
// keep the daemon from starting.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Source reports whether every endpoint is served, and if not, why; ok is false
// before the first attempt.
func (s *Server) Source() (facts.Source, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var why []string
	for _, e := range s.endpoints {
		if e.err != nil {
			why = append(why, e.err.Error())
		}
	}
	return facts.Source{Up: len(why) == 0, At: s.changed, Err: strings.Join(why, "; ")}, !s.changed.IsZero()
}

// Run serves until ctx is done, and then returns nil. An endpoint that cannot be
// served is logged once and retried.
func (s *Server) Run(ctx context.Context) error {
	var attempts, all sync.WaitGroup
	for _, e := range s.endpoints {
		attempts.Add(1)
		all.Go(func() { s.keep(ctx, e, sync.OnceFunc(attempts.Done)) })
	}
	attempts.Wait()
	close(s.ready)
	all.Wait()
	return nil
}

// keep serves an endpoint until ctx is done. It calls attempted after the first attempt.
func (s *Server) keep(ctx context.Context, e *endpoint, attempted func()) {
	defer attempted() // ctx may be done already
	for ok := ctx.Err() == nil; ok; ok = bounded.Sleep(ctx, s.retry) {
		l, err := s.listen(ctx, e)
		s.set(e, err)
		attempted()
		if err != nil {
			continue
		}
		s.log.Info("serving the "+s.what, zap.Stringer("address", l.Addr()))
		err = s.serveOn(ctx, l)
		if ctx.Err() == nil {
			s.set(e, err)
		}
	}
}

// listen opens an endpoint. The web configuration was valid when plegd started; it may have
// been edited since.
func (s *Server) listen(ctx context.Context, e *endpoint) (net.Listener, error) {
	if s.web != nil {
		if _, err := s.web.current(ctx); err != nil {
			return nil, fmt.Errorf("--web.config.file %q: %w", s.web.path, err)
		}
	}
	return e.listen(ctx)
}

// set stores an endpoint's error, and logs one that differs from the last.
func (s *Server) set(e *endpoint, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && (e.err == nil || e.err.Error() != err.Error()) {
		s.log.Warn("the "+s.what+" cannot be served; plegd runs on and tries again",
			zap.String("address", e.name), zap.Duration("every", s.retry), zap.Error(err))
	}
	s.changed = time.Now()
	e.err = err
}

// serveOn serves l until ctx is done or l breaks. Everything that a client can make
// last or grow is bounded.
func (s *Server) serveOn(ctx context.Context, l net.Listener) error {
	defer func() { _ = l.Close() }()
	errorLog, _ := zap.NewStdLogAt(s.log, zap.DebugLevel) // fails only for an unknown level
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog:          errorLog,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if s.web == nil {
		return server.Serve(netutil.LimitListener(l, maxControlConns))
	}
	g := newGate(l, s.web.current, s.refused, s.sampled)
	server.ConnState = g.state
	var accepting sync.WaitGroup
	accepting.Go(func() { g.run(ctx) })
	defer accepting.Wait()
	return server.Serve(g)
}

// Sampled returns log without repetitions: an equal message is logged once in ten minutes. Each call
// takes half a MiB.
func Sampled(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, 10*time.Minute, 1, 0)
	}))
}

// NewWebServer returns a server of h over TCP, at the addresses of --web.listen-address
// and at systemd's listeners. configFile is --web.config.file. All have been validated.
// trusted clients may ask as often as they like; refused is called for each connection that is closed because there are too many.
func NewWebServer(addresses []string, listeners []net.Listener, configFile string, h http.Handler,
	trusted Access, refused func(), log *zap.Logger) *Server {
	var endpoints []*endpoint
	for _, l := range listeners {
		handed := func(context.Context) (net.Listener, error) { return l, nil }
		endpoints = append(endpoints, &endpoint{name: l.Addr().String(), listen: handed})
	}
	for _, address := range addresses {
		listen := func(ctx context.Context) (net.Listener, error) {
			return new(net.ListenConfig).Listen(ctx, "tcp", address)
		}
		endpoints = append(endpoints, &endpoint{name: address, listen: listen})
	}
	file := &webFile{path: configFile}
	sampled := Sampled(log)
	return &Server{
		what: "web address", web: file, refused: refused, handler: file.guard(h, trusted, sampled), log: log, sampled: sampled, endpoints: endpoints,
		retry: retryInterval, ready: make(chan struct{}),
	}
}

// SystemdListeners returns the listeners that systemd handed to this process, for
// --web.systemd-socket.
func SystemdListeners() ([]net.Listener, error) {
	all, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("--web.systemd-socket: %w; check the socket unit, or leave the flag out", err)
	}
	all = slices.DeleteFunc(all, func(l net.Listener) bool { return l == nil }) // descriptors that are no listener
	if len(all) == 0 {
		return nil, errors.New("--web.systemd-socket: systemd handed over no listener; " +
			"start plegd by its socket unit, or leave the flag out")
	}
	return all, nil
}

// ValidateWeb checks the values of --web.listen-address and --web.config.file. Its
// errors are one line and name flag, value and allowed values. A port that is busy is
// no error here.
func ValidateWeb(addresses []string, file string) error {
	for _, a := range addresses {
		_, port, err := net.SplitHostPort(a)
		_, notNumber := strconv.ParseUint(port, 10, 16)
		if err == nil && notNumber != nil {
			err = fmt.Errorf("port %q: want 0 to 65535", port)
		}
		if err != nil {
			return fmt.Errorf("--web.listen-address %q: %w; give [HOST]:PORT, such as :20290, 127.0.0.1:20290 "+
				"or [::1]:20290", a, err)
		}
	}
	return validateWebConfig(file)
}
