package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// NewControlServer returns a server of h on a unix socket at path, which only its
// owner can open. The path has been validated.
func NewControlServer(path string, h http.Handler, log *zap.Logger) *Server {
	listen := func(ctx context.Context) (net.Listener, error) {
		l, err := listenControl(ctx, path)
		if err != nil {
			return nil, fmt.Errorf("make the control socket: %w (--control-socket sets another path)", err)
		}
		return l, nil
	}
	return &Server{
		what: "control socket", handler: h, log: log, retry: retryInterval,
		endpoints: []*endpoint{{name: path, listen: listen}}, ready: make(chan struct{}),
	}
}

// listenControl makes the control socket. It removes a socket without a listener, and
// leaves alone one that has a listener and everything that is no socket. The socket is 0600
// from the moment it exists: on Linux bind(2) gives the file the mode of the socket's own
// inode less the umask, which fchmod(2) sets before.
func listenControl(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmodErr error
		err := c.Control(func(fd uintptr) { chmodErr = syscall.Fchmod(int(fd), 0o600) })
		return errors.Join(err, chmodErr)
	}}
	return lc.Listen(ctx, "unix", path)
}

// removeStale removes the socket at path if it has no listener.
func removeStale(ctx context.Context, path string) error {
	file, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case file.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("another process serves %s", path)
	}
	// Only a refused connection proves that there is no listener: a full accept queue
	// (EAGAIN) and a stopped process look dead and are not.
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s exists and may be in use: %w", path, err)
	}
	return os.Remove(path)
}
