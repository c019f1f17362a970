package fakeruntime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// socketMode is the mode of the sockets: a client of a runtime's socket is
// root, and the fake one claims no less.
const socketMode = 0o600

// maxSocketPath is what fits into sockaddr_un with its final zero.
const maxSocketPath = 107

// listenUnix listens at a path where nothing is.
func listenUnix(path string) (*net.UnixListener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket path %s: %d bytes long, a unix socket's path has at most %d", path, len(path), maxSocketPath)
	}
	lc := net.ListenConfig{
		// The mode of the socket before bind becomes the mode of the file, so that
		// there is no moment in which others may connect.
		Control: func(_, _ string, c syscall.RawConn) error {
			var chmodErr error
			err := c.Control(func(fd uintptr) { chmodErr = syscall.Fchmod(int(fd), socketMode) })
			return errors.Join(err, chmodErr)
		},
	}
	l, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// removeStale removes a socket that nobody listens on. It is an error if somebody
// does, or if the path is something else.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("%s exists and is no socket; want a path that is free", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		_ = c.Close()
		return fmt.Errorf("%s is in use: a process listens on it; stop it or choose another path", path)
	case errors.Is(err, syscall.ECONNREFUSED):
	case errors.Is(err, fs.ErrNotExist): // it went away by itself
		return nil
	case errors.Is(err, syscall.EAGAIN):
		// A full accept queue belongs to a living, if stuck, process.
		return fmt.Errorf("%s is in use: its accept queue is full; stop its process or choose another path", path)
	default:
		return fmt.Errorf("%s: find out if it is in use: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the stale socket: %w", err)
	}
	return nil
}
