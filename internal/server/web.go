package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
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

// maxWebConns is the number of open connections per address.
const maxWebConns = 64

// WebOptions say where the web server listens.
type WebOptions struct {
	// Addresses are those of --web.listen-address. SystemdSocket replaces them by
	// systemd's listeners.
	Addresses     []string
	SystemdSocket bool
	// ConfigFile is --web.config.file, for TLS and authentication; empty: neither.
	ConfigFile string
}

// WebServer serves a handler over TCP. It is a task.
type WebServer struct {
	opts    WebOptions
	handler http.Handler
	log     *zap.Logger
	retry   time.Duration
	ready   chan struct{}
	serving

	addrsMu sync.Mutex
	addrs   []net.Addr
}

// NewWebServer returns a server of h. Its options have been validated:
// ValidateWebConfig, and ValidateSystemdSocket for SystemdSocket.
func NewWebServer(opts WebOptions, h http.Handler, log *zap.Logger) *WebServer {
	return &WebServer{opts: opts, handler: h, log: log, retry: retryInterval, ready: make(chan struct{})}
}

func (s *WebServer) String() string {
	if s.opts.SystemdSocket {
		return "web server on systemd's sockets"
	}
	return "web server on " + strings.Join(s.opts.Addresses, ", ")
}

// Ready is closed after the first attempt to listen on every address: a busy port
// must not keep the daemon from starting.
func (s *WebServer) Ready() <-chan struct{} { return s.ready }

// Addrs returns the addresses that are being served, in no order.
func (s *WebServer) Addrs() []net.Addr {
	s.addrsMu.Lock()
	defer s.addrsMu.Unlock()
	return slices.Clone(s.addrs)
}

// Run serves until ctx is done, and then returns nil. An address that is busy is
// logged and retried. The error is about missing listeners of systemd.
func (s *WebServer) Run(ctx context.Context) error {
	sources, err := s.sources()
	if err != nil {
		return err
	}
	var tried, done sync.WaitGroup
	tried.Add(len(sources))
	for name, listen := range sources {
		done.Go(func() { s.serve(ctx, name, listen, sync.OnceFunc(tried.Done)) })
	}
	tried.Wait()
	close(s.ready)
	<-ctx.Done()
	done.Wait()
	return nil
}

type listenFunc func(context.Context) (net.Listener, error)

// sources returns how to listen, by address.
func (s *WebServer) sources() (map[string]listenFunc, error) {
	out := map[string]listenFunc{}
	if !s.opts.SystemdSocket {
		for _, address := range s.opts.Addresses {
			out[address] = func(ctx context.Context) (net.Listener, error) {
				var lc net.ListenConfig
				return lc.Listen(ctx, "tcp", address)
			}
		}
		return out, nil
	}
	listeners, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("take over systemd's listeners: %w; check the socket unit, or leave out --web.systemd-socket", err)
	}
	for _, l := range listeners {
		if l == nil { // a descriptor that is no listener
			continue
		}
		once := make(chan net.Listener, 1)
		once <- l
		out[l.Addr().String()] = func(context.Context) (net.Listener, error) {
			select {
			case l := <-once:
				return l, nil
			default:
				return nil, errors.New("systemd's listener broke and is handed over only once; restart plegd")
			}
		}
	}
	if len(out) == 0 {
		return nil, errNoSystemdListener
	}
	return out, nil
}

// serve serves one address until ctx is done; tried is called after the first
// attempt to listen.
func (s *WebServer) serve(ctx context.Context, name string, listen listenFunc, tried func()) {
	defer tried()
	var failed logging.OnChange[string] // the last error
	for ctx.Err() == nil {
		l, err := s.listen(ctx, listen)
		if err == nil {
			failed.Set("")
			s.set(name, nil)
			s.addAddr(l.Addr())
			tried()
			err = s.serveListener(ctx, l)
			s.removeAddr(l.Addr())
		}
		if ctx.Err() != nil {
			return
		}
		s.set(name, err)
		tried()
		if _, changed := failed.Set(err.Error()); changed {
			s.log.Warn("the web address cannot be served; plegd runs on and tries again",
				zap.String("address", name), zap.Duration("every", s.retry), zap.Error(err))
		}
		sleep(ctx, s.retry)
	}
}

func (s *WebServer) listen(ctx context.Context, listen listenFunc) (net.Listener, error) {
	// The file was valid when plegd started; it may have been edited since.
	if err := web.Validate(s.opts.ConfigFile); err != nil {
		return nil, fmt.Errorf("read --web.config.file %q: %s; fix it", s.opts.ConfigFile, oneLine(err.Error()))
	}
	l, err := listen(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w; see what holds the port with ss -ltnp, or set --web.listen-address", err)
	}
	return l, nil
}

// serveListener serves l until ctx is done or l breaks. Each listener has a server
// of its own, because the toolkit wraps the handler of the server that it gets.
func (s *WebServer) serveListener(ctx context.Context, l net.Listener) error {
	defer l.Close()
	server := newServer(s.handler, s.log)
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
	s.log.Info("Serving metrics and status", zap.String("address", l.Addr().String()), zap.String("web_config_file", s.opts.ConfigFile))
	return web.Serve(limited(l, maxWebConns), server, &web.FlagConfig{
		WebListenAddresses: &s.opts.Addresses, WebSystemdSocket: new(bool), WebConfigFile: &s.opts.ConfigFile,
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
	s.addrs = slices.DeleteFunc(s.addrs, func(b net.Addr) bool { return a == b })
}

// toolkitLog returns the log of the exporter toolkit: warnings and errors, of which
// an equal one is logged once in ten minutes.
func toolkitLog(log *zap.Logger) *slog.Logger {
	const once, repeated = 1, 0
	log = log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))
	return slog.New(zapslog.NewHandler(zapcore.NewSamplerWithOptions(log.Core(), 10*time.Minute, once, repeated)))
}
