// Package evidencetest has what the tests of the sources and of the kernel parsers share. It is for tests only.
package evidencetest

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/must"
)

// Listener is a listening socket that accepts only on Accept.
type Listener struct {
	TB   testing.TB
	Path string
	FD   int
}

// ListenAt binds a listener with room for backlog connections and one more.
func ListenAt(tb testing.TB, path string, backlog int) *Listener {
	tb.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.Do(tb, err)
	l := &Listener{TB: tb, Path: path, FD: fd}
	tb.Cleanup(l.Close)
	must.Do(tb, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	must.Do(tb, unix.Listen(fd, backlog))
	return l
}

// Close closes the listener; a second time it does nothing.
func (l *Listener) Close() {
	if l.FD >= 0 {
		_ = unix.Close(l.FD)
		l.FD = -1
	}
}

// Inode returns the inode of the listening socket.
func (l *Listener) Inode() uint64 { return InodeOf(l.TB, l.FD) }

// Accept takes one connection out of the queue. The descriptor does not block.
func (l *Listener) Accept() int {
	l.TB.Helper()
	fd, _, err := unix.Accept4(l.FD, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	must.Do(l.TB, err)
	l.TB.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// Connect makes n connections to path.
func Connect(tb testing.TB, path string, n int) []net.Conn {
	tb.Helper()
	var out []net.Conn
	for range n {
		c, err := net.Dial("unix", path)
		must.Do(tb, err)
		tb.Cleanup(func() { _ = c.Close() })
		out = append(out, c)
	}
	return out
}

// InodeOf returns the inode of a descriptor.
func InodeOf(tb testing.TB, fd int) uint64 {
	tb.Helper()
	var st unix.Stat_t
	must.Do(tb, unix.Fstat(fd, &st))
	return st.Ino
}

// SocketPath returns a path that is short enough for a socket.
func SocketPath(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "plegd") //nolint:usetesting // t.TempDir is too long for a socket's path
	must.Do(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	// A test of what anybody may see needs a directory that anybody may enter.
	must.Do(tb, os.Chmod(dir, 0o755))
	return filepath.Join(dir, "r.sock")
}

// NeedUnixDiag skips where the kernel has no unix_diag, or no netlink at all, by the error of node.EachSocket.
func NeedUnixDiag(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		if strings.Contains(err.Error(), "no unix_diag") || errors.Is(err, unix.EPROTONOSUPPORT) ||
			errors.Is(err, unix.EAFNOSUPPORT) {
			tb.Skipf("SKIPPED: nothing here has been tested, this kernel cannot: %v", err)
		}
		tb.Fatal(err)
	}
}

// DialAs connects to a TCP address by a socket of another user.
func DialAs(tb testing.TB, uid int, address string) net.Conn {
	tb.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	self, err := unix.SetfsuidRetUid(uid)
	must.Do(tb, err)
	defer func() { _, _ = unix.SetfsuidRetUid(self) }()
	conn, err := net.Dial("tcp", address)
	must.Do(tb, err)
	return conn
}
