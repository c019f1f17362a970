package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/prometheus/exporter-toolkit/web"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"

	"github.com/plegd/plegd/internal/logging"
)

// maxWebConns is how many connections the web server holds at once. Each takes up
// to three goroutines while it is at work.
const maxWebConns = 32

// WebOptions say where the web server listens.
type WebOptions struct {
	// Addresses are those of --web.listen-address; none means nothing is
	// served. SystemdSocket takes the listeners that systemd hands over
	// instead.
	Addresses     []string
	SystemdSocket bool
	// ConfigFile is --web.config.file, for TLS and authentication; empty means
	// neither.
	ConfigFile string
}

// WebServer serves a handler over TCP. It is a task.
type WebServer struct {
	opts    WebOptions
	handler http.Handler
	log     *zap.Logger
	retry   time.Duration
	conns   *connLimit

	ready chan struct{}
	serving

	addrsMu sync.Mutex
	addrs   []net.Addr
}

// NewWebServer returns a server of h. Its options have been validated:
// ValidateWebConfig, and ValidateSystemdSocket for SystemdSocket.
func NewWebServer(opts WebOptions, h http.Handler, log *zap.Logger) *WebServer {
	return &WebServer{
		opts: opts, handler: h, log: log,
		retry: retryEvery,
		conns: newConnLimit(maxWebConns),
		ready: make(chan struct{}),
	}
}

// String names the task.
func (s *WebServer) String() string {
	if s.opts.SystemdSocket {
		return "web server on systemd's sockets"
	}
	return "web server on " + strings.Join(s.opts.Addresses, ", ")
}

// Ready is closed once every address has been tried for the first time: a port
// that is busy must not keep the daemon from starting.
func (s *WebServer) Ready() <-chan struct{} { return s.ready }

// Addrs returns the addresses that are being served, in no order.
func (s *WebServer) Addrs() []net.Addr {
	s.addrsMu.Lock()
	defer s.addrsMu.Unlock()
	return append([]net.Addr(nil), s.addrs...)
}

// Run serves until ctx ends, and then returns nil. An address that cannot be
// listened on is logged and tried again every few seconds. The error is of
// listeners that systemd was to hand over and did not.
func (s *WebServer) Run(ctx context.Context) error {
	sources, err := s.sources()
	if err != nil {
		return err
	}
	var tried, done sync.WaitGroup
	tried.Add(len(sources))
	for _, src := range sources {
		done.Go(func() { s.serve(ctx, src, sync.OnceFunc(tried.Done)) })
	}
	tried.Wait()
	close(s.ready)
	<-ctx.Done()
	done.Wait()
	return nil
}

// source is where a listener comes from: an address, or systemd.
type source struct {
	name   string
	listen func(context.Context) (net.Listener, error)
}

func (s *WebServer) sources() ([]source, error) {
	if !s.opts.SystemdSocket {
		out := make([]source, 0, len(s.opts.Addresses))
		for _, address := range s.opts.Addresses {
			out = append(out, source{name: address, listen: func(ctx context.Context) (net.Listener, error) {
				var lc net.ListenConfig
				return lc.Listen(ctx, "tcp", address)
			}})
		}
		return out, nil
	}
	listeners, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("taking over systemd's listeners: %w; check the socket unit, or leave out --web.systemd-socket", err)
	}
	var out []source
	for _, l := range listeners {
		if l == nil {
			continue // systemd may hand over other things too
		}
		taken := false
		out = append(out, source{name: l.Addr().String(), listen: func(context.Context) (net.Listener, error) {
			if taken {
				return nil, errors.New("systemd's listener broke and is handed over only once; restart plegd")
			}
			taken = true
			return l, nil
		}})
	}
	if len(out) == 0 {
		return nil, errNoSystemdListener
	}
	return out, nil
}

// serve serves one address until ctx ends; tried is called after the first
// attempt to listen.
func (s *WebServer) serve(ctx context.Context, src source, tried func()) {
	defer tried()
	var failed logging.OnChange[string] // the last error
	for ctx.Err() == nil {
		err := s.serveSource(ctx, src, func() {
			failed.Set("")
			s.set(src.name, nil)
			tried()
		})
		if ctx.Err() != nil {
			return
		}
		s.set(src.name, err)
		tried()
		if _, changed := failed.Set(err.Error()); changed {
			s.log.Warn("the web address cannot be served; plegd runs on and tries again",
				zap.String("address", src.name), zap.Duration("every", s.retry), zap.Error(err))
		}
		sleep(ctx, s.retry)
	}
}

func (s *WebServer) serveSource(ctx context.Context, src source, serving func()) error {
	// The file was good when plegd started; it may have been edited since.
	if err := web.Validate(s.opts.ConfigFile); err != nil {
		return fmt.Errorf("reading --web.config.file %q: %s; fix it", s.opts.ConfigFile, oneLine(err.Error()))
	}
	l, err := src.listen(ctx)
	if err != nil {
		return fmt.Errorf("%w; see what holds the port with ss -ltnp, or set --web.listen-address", err)
	}
	return s.serveListener(ctx, l, serving)
}

// serveListener serves l until ctx ends or l breaks. It has a server of its
// own: the toolkit wraps the handler of the server that it is given, once for
// each listener, so that two of them would check a password twice.
func (s *WebServer) serveListener(ctx context.Context, l net.Listener, serving func()) error {
	limited := s.conns.listener(l)
	defer l.Close()
	server := newServer(s.handler, s.conns, s.log)
	stopped := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(stopped)
		stop(server)
	})
	defer func() {
		if !cancel() {
			<-stopped
		}
	}()

	s.addAddr(l.Addr())
	defer s.removeAddr(l.Addr())
	s.log.Info("Serving metrics and status", zap.String("address", l.Addr().String()), zap.String("web_config_file", s.opts.ConfigFile))
	serving()
	no := false
	return web.Serve(limited, server, &web.FlagConfig{
		WebListenAddresses: &s.opts.Addresses,
		WebSystemdSocket:   &no,
		WebConfigFile:      &s.opts.ConfigFile,
	}, toolkitLog(s.log))
}

func (s *WebServer) addAddr(a net.Addr) {
	s.addrsMu.Lock()
	defer s.addrsMu.Unlock()
	s.addrs = append(s.addrs, a)
}

func (s *WebServer) removeAddr(a net.Addr) {
	s.addrsMu.Lock()
	defer s.addrsMu.Unlock()
	for i := range s.addrs {
		if s.addrs[i] == a {
			s.addrs = append(s.addrs[:i], s.addrs[i+1:]...)
			return
		}
	}
}

// toolkitLog returns the log of the exporter toolkit: warnings and errors, of which
// an equal one is logged once in ten minutes.
func toolkitLog(log *zap.Logger) *slog.Logger {
	const once, repeated = 1, 0
	log = log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))
	return slog.New(zapslog.NewHandler(zapcore.NewSamplerWithOptions(log.Core(), 10*time.Minute, once, repeated)))
}
