package server

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

// unixListener is the part of a net.UnixListener that a server needs.
type unixListener = net.Listener

// controlMode is the control socket's: what plegd knows is for its owner, and
// names of pods are in it.
const controlMode fs.FileMode = 0o600

// listenControl makes the control socket. It removes a socket that nobody
// listens on any more, and leaves alone one that somebody does, and whatever is
// not a socket.
//
// The socket is 0600 from the moment it exists: on Linux bind(2) gives the file
// the mode of the socket's own inode less the umask, and fchmod(2) sets that
// mode before. (Setting the umask instead would change it for every thread of
// the process; a chmod(2) after bind leaves a moment in between.)
func listenControl(ctx context.Context, path string) (*controlListener, error) {
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making the control socket's directory: %w; make %s writable for plegd, or set --control-socket", err, filepath.Dir(dir))
	}
	// Two daemons that find the same stale socket must not remove each
	// other's fresh one.
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, fmt.Errorf("locking %s for the control socket: %w; another plegd may be starting", dir, err)
	}
	defer unlock()
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}

	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmodErr error
		if err := c.Control(func(fd uintptr) { chmodErr = syscall.Fchmod(int(fd), uint32(controlMode)) }); err != nil {
			return err
		}
		return chmodErr
	}}
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("making the control socket: %w; make %s writable for plegd, or set --control-socket", err, dir)
	}
	// Go would unlink the path by its name on Close, whoever's it is by then.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	file, err := os.Lstat(path)
	if err == nil && file.Mode().Perm()&^controlMode != 0 {
		err = fmt.Errorf("its mode is %v in spite of fchmod", file.Mode())
		_ = os.Remove(path)
	}
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("making the control socket %s: %w; put it on a local file system of Linux with --control-socket", path, err)
	}
	return &controlListener{unixListener: l, path: path, file: file}, nil
}

// removeStale removes the socket at path if nobody listens on it.
func removeStale(ctx context.Context, path string) error {
	file, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for a stale control socket: %w; make %s readable for plegd", err, filepath.Dir(path))
	}
	if file.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("making the control socket: %s exists and is not a socket; remove it, or set --control-socket", path)
	}
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("making the control socket: another process serves %s; stop it, or set --control-socket", path)
	}
	// Only a refused connection proves that nobody listens: a full accept queue
	// (EAGAIN) and a stopped process look dead and are not.
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("making the control socket: %s exists and may be in use: %w; if no plegd runs, remove it", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing the stale control socket: %w; make %s writable for plegd", err, filepath.Dir(path))
	}
	return nil
}

// lockDir takes the advisory lock of a directory, without waiting for it.
func lockDir(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, &fs.PathError{Op: "flock", Path: dir, Err: err}
	}
	return func() { _ = f.Close() }, nil
}
