package evidence_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/health"
)

// connect connects as plegd does.
func connect(ctx context.Context, path string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close()
	}
	return err
}

// TestConnectCause makes each failure on a real socket and checks its cause.
func TestConnectCause(t *testing.T) {
	// make prepares dir before the connect to dir/s.
	for _, tt := range []struct {
		name   string
		make   func(t *testing.T, dir, path string)
		path   string // below dir, in place of s
		errno  error
		cause  health.Cause
		detail []string
	}{
		{name: "a listener", make: func(t *testing.T, _, path string) { bind(t, path, unix.SOCK_STREAM, 5) }, cause: health.CauseNone},
		{name: "nothing", make: nothing, errno: syscall.ENOENT, cause: health.CauseMissing, detail: []string{"no such file"}},
		{name: "no directory", make: nothing, path: "no/s", errno: syscall.ENOENT, cause: health.CauseMissing},
		{name: "below a file", make: func(t *testing.T, dir, _ string) { file(t, dir+"/f") }, path: "f/s", errno: syscall.ENOTDIR, cause: health.CauseMissing},
		{name: "a link to nothing", make: func(t *testing.T, dir, path string) { link(t, dir+"/gone", path) }, errno: syscall.ENOENT, cause: health.CauseMissing},
		{name: "a stale socket", make: func(t *testing.T, _, path string) { stale(t, path) }, errno: syscall.ECONNREFUSED, cause: health.CauseRefused, detail: []string{"nobody listens"}},
		{name: "bound and not listening", make: func(t *testing.T, _, path string) { bind(t, path, unix.SOCK_STREAM, -1) }, errno: syscall.ECONNREFUSED, cause: health.CauseRefused},
		{name: "a regular file", make: func(t *testing.T, _, path string) { file(t, path) }, errno: syscall.ECONNREFUSED, cause: health.CauseNotSocket, detail: []string{"not a socket"}},
		{name: "a directory", make: func(t *testing.T, _, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, errno: syscall.ECONNREFUSED, cause: health.CauseNotSocket, detail: []string{"its mode is d"}},
		{name: "a pipe", make: func(t *testing.T, _, path string) {
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, errno: syscall.ECONNREFUSED, cause: health.CauseNotSocket, detail: []string{"its mode is p"}},
		{name: "a datagram socket", make: func(t *testing.T, _, path string) { bind(t, path, unix.SOCK_DGRAM, -1) }, errno: syscall.EPROTOTYPE, cause: health.CauseNotSocket, detail: []string{"another type"}},
		{name: "a packet socket", make: func(t *testing.T, _, path string) { bind(t, path, unix.SOCK_SEQPACKET, 5) }, errno: syscall.EPROTOTYPE, cause: health.CauseNotSocket},
		{name: "a full queue", make: func(t *testing.T, _, path string) { bind(t, path, unix.SOCK_STREAM, 0); fill(t, path) }, errno: syscall.EAGAIN, cause: health.CauseQueueFull, detail: []string{"EAGAIN"}},
		{name: "links in a circle", make: func(t *testing.T, dir, path string) { link(t, path, dir+"/o"); link(t, dir+"/o", path) }, errno: syscall.ELOOP, cause: health.CauseError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := shortDir(t)
			path := dir + "/s"
			tt.make(t, dir, path)
			if tt.path != "" {
				path = filepath.Join(dir, tt.path)
			}
			err := connect(t.Context(), path)
			if !errors.Is(err, tt.errno) {
				t.Fatalf("connect: %v, want %v: the machine does not do what this test is about", err, tt.errno)
			}
			sameCause(t, err, path, tt.cause, tt.detail...)
			// gRPC and others wrap it.
			if err != nil {
				sameCause(t, fmt.Errorf("wrapped: %w", err), path, tt.cause)
			}
		})
	}
	path := shortDir(t) + "/s"
	bind(t, path, unix.SOCK_STREAM, 5)
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, err := range []error{connect(late, path), os.ErrDeadlineExceeded, context.DeadlineExceeded} {
		sameCause(t, err, path, health.CauseTimeout)
	}
	if cause, detail := evidence.ConnectCause(errors.New("strange"), "/s"); cause != health.CauseError || detail != "strange" {
		t.Errorf("cause %q, %q", cause, detail)
	}
}

// sameCause checks what ConnectCause makes of err: the cause, and words in one
// line that name the path.
func sameCause(t *testing.T, err error, path string, want health.Cause, details ...string) {
	t.Helper()
	cause, detail := evidence.ConnectCause(err, path)
	if cause != want {
		t.Errorf("%v: cause %q (%s), want %q", err, cause, detail, want)
	}
	if (detail == "") != (want == health.CauseNone) || strings.Contains(detail, "\n") || want != health.CauseNone && !strings.Contains(detail, path) {
		t.Errorf("%v: detail %q", err, detail)
	}
	for _, d := range details {
		if !strings.Contains(detail, d) {
			t.Errorf("%v: detail %q, want %q in it", err, detail, d)
		}
	}
}

// TestConnectCausePermission: not as root, for whom nothing is forbidden.
func TestConnectCausePermission(t *testing.T) {
	dir := shortDir(t)
	open, closed := dir+"/open", dir+"/closed"
	for _, d := range []string{open, closed} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		bind(t, d+"/s", unix.SOCK_STREAM, 5)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(open+"/s", 0), os.Chmod(closed, 0)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(closed, 0o700) }) // so that it can be removed
	done := make(chan string, 1)
	go func() {
		// The thread ends with the goroutine, and its identity with it.
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			_ = unix.Setfsuid(65534) // takes CAP_DAC_OVERRIDE with it, capabilities(7)
			if uid, err := unix.SetfsuidRetUid(65534); err != nil || uid != 65534 {
				done <- fmt.Sprintf("SKIPPED: nothing here has been tested, this machine does not let root become another uid: %d, %v", uid, err)
				return
			}
		}
		uid := fmt.Sprintf("uid %d", os.Geteuid())
		for _, path := range []string{open + "/s", closed + "/s"} {
			err := connect(context.Background(), path)
			cause, detail := evidence.ConnectCause(err, path)
			if !errors.Is(err, syscall.EACCES) || cause != health.CausePermissionDenied || !strings.Contains(detail, path) || !strings.Contains(detail, uid) {
				t.Errorf("%s: %v, cause %q (%s); want EACCES and %q", path, err, cause, detail, health.CausePermissionDenied)
			}
		}
		done <- ""
	}()
	if why := <-done; why != "" {
		t.Skip(why)
	}
	if cause, _ := evidence.ConnectCause(syscall.EPERM, "/s"); cause != health.CausePermissionDenied {
		t.Errorf("EPERM, as from a security module: %q", cause)
	}
}

func nothing(*testing.T, string, string) {}

// shortDir is a directory in whose paths sockets fit.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e") //nolint:usetesting // a test's own directory is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func file(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

// bind binds a socket of a type, and listens unless backlog is negative.
func bind(t *testing.T, path string, typ, backlog int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if backlog < 0 {
		return
	}
	if err := unix.Listen(fd, backlog); err != nil {
		t.Fatal(err)
	}
}

// stale leaves the socket of a listener that is gone.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
}

// fill connects until the accept queue is full.
func fill(t *testing.T, path string) {
	t.Helper()
	for range 100 {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		switch err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); {
		case errors.Is(err, syscall.EAGAIN):
			return
		case err != nil:
			t.Fatal(err)
		}
	}
	t.Fatal("100 connections, and the queue is not full")
}
