package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/exporter-toolkit/web"
)

// ValidateWebConfig checks the values of --web.listen-address and
// --web.config.file. Its errors are one line and name flag, value and what is
// allowed. A port that is busy is no error here.
func ValidateWebConfig(addresses []string, file string) error {
	seen := make(map[string]bool)
	for _, a := range addresses {
		if err := validateAddress(a); err != nil {
			return fmt.Errorf("--web.listen-address %q: %w; give [HOST]:PORT, such as :20290, 127.0.0.1:20290 or [::1]:20290", a, err)
		}
		if seen[a] {
			return fmt.Errorf("--web.listen-address %q: is given twice; give each address once", a)
		}
		seen[a] = true
	}
	if file == "" {
		return nil
	}
	if err := web.Validate(file); err != nil {
		return fmt.Errorf("--web.config.file %q: %s; give a readable file in the format of Prometheus's exporter-toolkit (docs/web-configuration.md there)",
			file, oneLine(err.Error()))
	}
	return nil
}

func validateAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		var addrErr *net.AddrError
		if errors.As(err, &addrErr) {
			return errors.New(addrErr.Err)
		}
		return err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	} else if strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("port %q has leading zeros", port)
	}
	if host == "" || isHostname(host) {
		return nil
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return fmt.Errorf("host %q is neither an IP address nor a host name", host)
	}
	return nil
}

// isHostname reports whether s can be a host name: letters, digits, hyphens and
// dots, and something other than a mistyped IPv4 address.
func isHostname(s string) bool {
	letter := false
	for _, c := range s {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			letter = true
		case c >= '0' && c <= '9', c == '-', c == '.':
		default:
			return false
		}
	}
	return letter && len(s) <= 253
}

var errNoSystemdListener = errors.New("--web.systemd-socket: systemd handed over no listener; start plegd by its socket unit, or leave the flag out")

// ValidateSystemdSocket checks that systemd handed listeners to this process,
// for --web.systemd-socket.
func ValidateSystemdSocket() error {
	pid, err := strconv.Atoi(os.Getenv("LISTEN_PID"))
	if err != nil || pid != os.Getpid() {
		return errNoSystemdListener
	}
	if n, err := strconv.Atoi(os.Getenv("LISTEN_FDS")); err != nil || n < 1 {
		return errNoSystemdListener
	}
	return nil
}

// oneLine folds the lines of a message into one.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
