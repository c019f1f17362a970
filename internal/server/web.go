package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/prometheus/exporter-toolkit/web"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"
)

// maxWebConns is the number of open connections per address.
const maxWebConns = 64

// WebOptions say where the web server listens.
type WebOptions struct {
	// Addresses are those of --web.listen-address; Listeners are systemd's.
	Addresses []string
	Listeners []net.Listener
	// ConfigFile is --web.config.file, for TLS and authentication; empty: neither.
	ConfigFile string
}

// NewWebServer returns a server of h over TCP. Its options have been validated.
func NewWebServer(opts WebOptions, h http.Handler, log *zap.Logger) *Server {
	s := newServer("web address", maxWebConns, h, log)
	flags := &web.FlagConfig{
		WebListenAddresses: &opts.Addresses, WebSystemdSocket: new(bool), WebConfigFile: &opts.ConfigFile,
	}
	toolkitLog := slog.New(zapslog.NewHandler(sampled(log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))).Core()))
	add := func(name string, listen func(context.Context) (net.Listener, error)) {
		s.endpoints = append(s.endpoints, endpoint{
			name: name,
			listen: func(ctx context.Context) (net.Listener, error) {
				// The file was valid when plegd started; it may have been edited since.
				if err := validateWebConfig(opts.ConfigFile); err != nil {
					return nil, err
				}
				return listen(ctx)
			},
			serve: func(server *http.Server, l net.Listener) error {
				return web.Serve(l, server, flags, toolkitLog)
			},
		})
	}
	for _, l := range opts.Listeners {
		add(l.Addr().String(), func(context.Context) (net.Listener, error) { return l, nil })
	}
	for _, address := range opts.Addresses {
		add(address, func(ctx context.Context) (net.Listener, error) {
			var lc net.ListenConfig
			l, err := lc.Listen(ctx, "tcp", address)
			if err != nil {
				return nil, fmt.Errorf("%w; find the process on the port with ss -ltnp, or set --web.listen-address", err)
			}
			return l, nil
		})
	}
	return s
}

// sampled returns log without repetitions: an equal message is logged once in ten minutes.
func sampled(log *zap.Logger) *zap.Logger {
	const once, repeated = 1, 0
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, 10*time.Minute, once, repeated)
	}))
}

// SystemdListeners returns the listeners that systemd handed to this process, for
// --web.systemd-socket.
func SystemdListeners() ([]net.Listener, error) {
	all, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("--web.systemd-socket: %w; check the socket unit, or leave the flag out", err)
	}
	var out []net.Listener
	for _, l := range all {
		if l != nil { // else a descriptor that is no listener
			out = append(out, l)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("--web.systemd-socket: systemd handed over no listener; " +
			"start plegd by its socket unit, or leave the flag out")
	}
	return out, nil
}

// ValidateWeb checks the values of --web.listen-address and --web.config.file. Its
// errors are one line and name flag, value and allowed values. A port that is busy is
// no error here.
func ValidateWeb(addresses []string, file string) error {
	for i, a := range addresses {
		host, port, err := net.SplitHostPort(a)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if mistyped := strings.Trim(host, "0123456789.-") == ""; err == nil && host != "" && mistyped {
			_, err = netip.ParseAddr(host)
		}
		if err == nil && slices.Contains(addresses[:i], a) {
			err = errors.New("it is given twice")
		}
		if err != nil {
			return fmt.Errorf("--web.listen-address %q: %w; give [HOST]:PORT, such as :20290, 127.0.0.1:20290 "+
				"or [::1]:20290", a, err)
		}
	}
	return validateWebConfig(file)
}

func validateWebConfig(file string) error {
	if err := web.Validate(file); err != nil {
		return fmt.Errorf("--web.config.file %q: %s; give a readable file in the format of Prometheus's "+
			"exporter-toolkit", file,
			strings.Join(strings.Fields(err.Error()), " "))
	}
	return nil
}
