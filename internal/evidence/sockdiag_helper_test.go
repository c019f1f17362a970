package evidence

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// needUnixDiag skips where the kernel has no unix_diag, or no netlink at all.
func needUnixDiag(tb testing.TB) {
	tb.Helper()
	var d diagConn
	defer d.close()
	if err := d.open(tb.Context()); err != nil {
		if strings.Contains(err.Error(), "no unix_diag") || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
			tb.Skipf("SKIPPED: nothing here has been tested, this kernel cannot: %v", err)
		}
		tb.Fatal(err)
	}
}

// testListener is a socket that listens and accepts only when it is told to.
type testListener struct {
	tb   testing.TB
	path string
	fd   int
}

// listenAt binds a listener with room for backlog connections and one more.
func listenAt(tb testing.TB, path string, backlog int) *testListener {
	tb.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	l := &testListener{tb: tb, path: path, fd: fd}
	tb.Cleanup(l.close)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		tb.Fatal(err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		tb.Fatal(err)
	}
	return l
}

func (l *testListener) close() {
	if l.fd >= 0 {
		_ = unix.Close(l.fd)
		l.fd = -1
	}
}

func (l *testListener) inode() uint64 { return inodeOf(l.tb, l.fd) }

// accept takes one connection out of the queue. The descriptor does not block.
func (l *testListener) accept() int {
	l.tb.Helper()
	fd, _, err := unix.Accept4(l.fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		l.tb.Fatal(err)
	}
	l.tb.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// connect makes n connections to path.
func connect(tb testing.TB, path string, n int) []net.Conn {
	tb.Helper()
	var out []net.Conn
	for range n {
		c, err := net.Dial("unix", path)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = c.Close() })
		out = append(out, c)
	}
	return out
}

func inodeOf(tb testing.TB, fd int) uint64 {
	tb.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		tb.Fatal(err)
	}
	return st.Ino
}

// fill writes to fd until the kernel takes no more, and returns the bytes.
func fill(tb testing.TB, fd, piece int) int {
	tb.Helper()
	b, total := make([]byte, piece), 0
	for {
		n, err := unix.Write(fd, b)
		if errors.Is(err, unix.EAGAIN) {
			return total
		}
		if err != nil {
			tb.Fatal(err)
		}
		total += n
	}
}

// socketPath returns a path that is short enough for a socket.
func socketPath(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "plegd") //nolint:usetesting // t.TempDir is too long for a socket's path
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	// A test of what anybody may see needs a directory that anybody may enter.
	if err := os.Chmod(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(dir, "r.sock")
}

func at(path string) func() string { return func() string { return path } }
