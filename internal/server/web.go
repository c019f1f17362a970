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

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/prometheus/exporter-toolkit/web"
	"go.uber.org/zap"
)

// maxWebConns is the number of open connections per address.
const maxWebConns = 64

// NewWebServer returns a server of h over TCP, at the addresses of --web.listen-address
// and at systemd's listeners. configFile is --web.config.file. All have been validated.
func NewWebServer(addresses []string, listeners []net.Listener, configFile string, h http.Handler,
	log *zap.Logger) *Server {
	s := newServer("web address", maxWebConns, configFile, h, log)
	for _, l := range listeners {
		s.add(l.Addr().String(), func(context.Context) (net.Listener, error) { return l, nil })
	}
	for _, address := range addresses {
		s.add(address, func(ctx context.Context) (net.Listener, error) {
			return new(net.ListenConfig).Listen(ctx, "tcp", address)
		})
	}
	return s
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
	for i, a := range addresses {
		_, port, err := net.SplitHostPort(a)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
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
			"exporter-toolkit", file, strings.Join(strings.Fields(err.Error()), " "))
	}
	return nil
}
