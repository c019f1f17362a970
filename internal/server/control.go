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

const (
	// maxControlConns is the number of open connections of the control socket.
	maxControlConns = 8
	// maxSocketPath is the longest path of a unix socket: sun_path less its
	// final 0.
	maxSocketPath = 107
	// controlMode is the mode of the control socket: names of pods are for its owner.
	controlMode fs.FileMode = 0o600
)

// ValidateControlSocket checks the value of --control-socket. An empty path
// means no control socket.
func ValidateControlSocket(path string) error {
	switch {
	case path == "":
		return nil
	case !filepath.IsAbs(path):
		return fmt.Errorf("--control-socket %q: is not absolute; give an absolute path, "+
			"or an empty one for no control socket", path)
	case len(path) > maxSocketPath:
		return fmt.Errorf("--control-socket %q: has %d bytes; give a path of at most %d", path, len(path), maxSocketPath)
	}
	return nil
}

// NewControlServer returns a server of h on a unix socket at path, which only its
// owner can open. The path has been validated.
func NewControlServer(path string, h http.Handler, log *zap.Logger) *Server {
	s := newServer("control socket", maxControlConns, h, log)
	s.endpoints = []endpoint{{
		name:   path,
		listen: func(ctx context.Context) (net.Listener, error) { return listenControl(ctx, path) },
		serve:  func(server *http.Server, l net.Listener) error { return server.Serve(l) },
	}}
	return s
}

// controlListener is a listening unix socket and the file that it is bound to.
type controlListener struct {
	net.Listener
	path string
	file os.FileInfo
}

// listenControl makes the control socket. It removes a socket without a listener, and
// leaves alone one that has a listener and everything that is no socket.
//
// The socket is 0600 from the moment it exists: on Linux bind(2) gives the file
// the mode of the socket's own inode less the umask, and fchmod(2) sets that
// mode before. (Setting the umask instead would change it for every thread of
// the process; a chmod(2) after bind leaves a moment in between.)
func listenControl(ctx context.Context, path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the directory of the control socket: %w; make %s writable for plegd, "+
			"or set --control-socket", err, filepath.Dir(dir))
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, fmt.Errorf("make the control socket: %w", err)
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmodErr error
		err := c.Control(func(fd uintptr) { chmodErr = syscall.Fchmod(int(fd), uint32(controlMode)) })
		return errors.Join(err, chmodErr)
	}}
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("make the control socket: %w; make %s writable for plegd, or set --control-socket", err, dir)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // it would unlink the socket of another process too
	file, err := os.Lstat(path)
	if err != nil || file.Mode().Perm()&^controlMode != 0 {
		_ = l.Close()
		return nil, fmt.Errorf("make the control socket %s: its mode cannot be set; "+
			"put it on a local file system with --control-socket", path)
	}
	return &controlListener{Listener: l, path: path, file: file}, nil
}

// Close removes the socket, unless its path leads to another file. It is removed
// while it still accepts: no other plegd takes it for stale and makes its own in
// between.
func (l *controlListener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.file) {
		_ = os.Remove(l.path)
	}
	return l.Listener.Close()
}

// removeStale removes the socket at path if it has no listener.
func removeStale(ctx context.Context, path string) error {
	file, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w; make %s readable for plegd", err, filepath.Dir(path))
	}
	if file.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket; remove it, or set --control-socket", path)
	}
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("another process serves %s; stop it, or set --control-socket", path)
	}
	// Only a refused connection proves that there is no listener: a full accept queue
	// (EAGAIN) and a stopped process look dead and are not.
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s exists and may be in use: %w; if no plegd runs, remove it", path, err)
	}
	return os.Remove(path)
}
