package fakeruntime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// socketMode is the mode of the sockets: a client of a runtime's socket is
// root, and the fake one claims no less.
const socketMode = 0o600

// maxSocketPath is what fits into sockaddr_un with its final zero.
const maxSocketPath = 107

// listenUnix listens at a path; the socket that a dead process left there is
// replaced.
func listenUnix(path string) (*net.UnixListener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("%s: %d bytes long; a unix socket's path has at most %d", path, len(path), maxSocketPath)
	}
	if err := removeStale(path); err != nil {
		return nil, err
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
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("directory %s does not exist; make it, or choose another path", filepath.Dir(path))
	}
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// removeStale removes a socket without a listener; anything else at the path is an
// error.
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
	if err == nil {
		_ = c.Close()
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return os.Remove(path)
	}
	// EAGAIN, a full accept queue, belongs to a process that lives and is stuck.
	return fmt.Errorf("%s is in use by a process that listens on it (connect: %w); stop it or choose another path",
		path, err)
}
