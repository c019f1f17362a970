package server

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view/viewtest"
)

func newTestControl(t *testing.T, path string) (*ControlServer, *logRecorder) {
	t.Helper()
	log := newLogRecorder()
	src := viewtest.NewSource(viewtest.Degraded())
	_, metrics := newTestRegistry(src)
	h := NewHandler(src, metrics, HandlerOptions{Build: exporter.Build{Version: "1.0.0"}, Access: FullAccess})
	s := NewControlServer(path, h, log.log)
	s.retry, s.check = 20*time.Millisecond, 20*time.Millisecond
	return s, log
}

// socketPath returns a path short enough for a socket.
func socketPath(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plegd.sock")
	if len(path) > maxSocketPath {
		t.Skipf("the temporary directory is too deep for a socket; set TMPDIR to a short one: %s", path)
	}
	return path
}

// staleSocket leaves a socket that nobody listens on.
func staleSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
}

func fetchState(t *testing.T, path string) (*health.Snapshot, error) {
	t.Helper()
	return FetchStatus(t.Context(), path)
}

func TestControlServer(t *testing.T) {
	path := socketPath(t)
	s, log := newTestControl(t, path)
	stop := start(t, s)
	d, err := fetchState(t, path)
	if err != nil {
		t.Fatal(err)
	}
	if d.State != "degraded" || d.PlegdVersion != "1.0.0" || d.Facts.Relist.Inspecting[0].Name != "nightly-report-28872000-k4j2p" {
		t.Errorf("%+v", d)
	}
	if d := stop(); d > time.Second {
		t.Errorf("stopping took %v", d)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if log.String() != "" {
		t.Errorf("something was said while all was well:\n%s", log)
	}
}

// TestControlSocketMode looks at the socket's mode from the moment it exists,
// under the most permissive umask. It must not run beside other tests.
func TestControlSocketMode(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := socketPath(t)
	stop := make(chan struct{})
	modes := make(chan map[fs.FileMode]int, 1)
	go func() {
		seen := make(map[fs.FileMode]int)
		for {
			select {
			case <-stop:
				modes <- seen
				return
			default:
			}
			if f, err := os.Lstat(path); err == nil {
				seen[f.Mode()]++
			}
		}
	}()
	for range 300 {
		l, err := listenControl(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		l.remove()
		_ = l.Close()
	}
	close(stop)
	seen := <-modes
	for mode, n := range seen {
		if mode != fs.ModeSocket|0o600 {
			t.Errorf("the socket was %v, seen %d times", mode, n)
		}
	}
	if len(seen) == 0 {
		t.Error("the socket was never seen")
	}
}

func TestControlServerStale(t *testing.T) {
	path := socketPath(t)
	staleSocket(t, path)
	s, log := newTestControl(t, path)
	start(t, s)
	if _, err := fetchState(t, path); err != nil {
		t.Errorf("%v\n%s", err, log)
	}
}

// TestControlServerLive: the socket of a daemon that runs is left alone, and
// taken over once that has gone.
func TestControlServerLive(t *testing.T) {
	path := socketPath(t)
	first, _ := newTestControl(t, path)
	stopFirst := start(t, first)
	before, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	second, log := newTestControl(t, path)
	start(t, second)
	time.Sleep(5 * second.retry)
	after, err := os.Lstat(path)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the first daemon's socket is gone: %v", err)
	}
	if n := log.count("level=warn"); n != 1 || !strings.Contains(log.String(), "another process serves") {
		t.Errorf("said %d times, want once:\n%s", n, log)
	}
	stopFirst()
	eventually(t, "the second daemon serves", func() bool {
		_, err := fetchState(t, path)
		return err == nil
	})
	if log.count("serving the control socket again") != 1 {
		t.Errorf("the end of the trouble was not said:\n%s", log)
	}
}

// TestControlServerFullQueue: a daemon that does not accept looks dead and is
// not.
func TestControlServerFullQueue(t *testing.T) {
	path := socketPath(t)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if c, err := net.Dial("unix", path); err == nil {
			defer c.Close()
		}
	}
	if _, err := listenControl(t.Context(), path); err == nil || !strings.Contains(err.Error(), "may be in use") {
		t.Errorf("error: %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket is gone: %v", err)
	}
}

func TestControlServerNotASocket(t *testing.T) {
	path := socketPath(t)
	write(t, path, "precious")
	s, log := newTestControl(t, path)
	stop := start(t, s)
	time.Sleep(3 * s.retry)
	stop()
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file was touched: %q, %v", b, err)
	}
	if n := log.count("is not a socket"); n != 1 {
		t.Errorf("said %d times, want once:\n%s", n, log)
	}
}

// TestControlServerDirectory: the directory may come later, and nobody can
// write below a file.
func TestControlServerDirectory(t *testing.T) {
	base := filepath.Dir(socketPath(t))
	blocker := filepath.Join(base, "run")
	write(t, blocker, "")
	path := filepath.Join(blocker, "plegd", "plegd.sock")
	s, log := newTestControl(t, path)
	start(t, s)
	time.Sleep(3 * s.retry)
	if n := log.count("level=warn"); n != 1 || !strings.Contains(log.String(), "not a directory") {
		t.Errorf("said %d times, want once:\n%s", n, log)
	}
	if state, ok := s.Source(); !ok || state.Up || !strings.Contains(state.Err, "not a directory") {
		t.Errorf("exported as %+v, %v", state, ok)
	}
	if err := os.Remove(blocker); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(blocker, 0o755); err != nil {
		t.Fatal(err)
	}
	eventually(t, "served once the directory can be made", func() bool {
		_, err := fetchState(t, path)
		return err == nil
	})
	if state, ok := s.Source(); !ok || !state.Up {
		t.Errorf("served, and exported as %+v, %v", state, ok)
	}
}

// TestControlServerRemoved: somebody cleans up /run.
func TestControlServerRemoved(t *testing.T) {
	path := socketPath(t)
	s, _ := newTestControl(t, path)
	start(t, s)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the socket is made again", func() bool {
		_, err := fetchState(t, path)
		return err == nil
	})
}

// TestControlServerReplaced: a stop removes its own socket only.
func TestControlServerReplaced(t *testing.T) {
	path := socketPath(t)
	s, _ := newTestControl(t, path)
	s.check = time.Hour
	stop := start(t, s)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	staleSocket(t, path)
	stop()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("somebody else's socket was removed: %v", err)
	}
}

func TestValidateControlSocket(t *testing.T) {
	for path, want := range map[string]string{
		"": "", "/run/plegd/plegd.sock": "", "plegd.sock": "absolute", "/" + strings.Repeat("x", 107): "at most 107",
	} {
		err := ValidateControlSocket(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v", path, err)
		}
	}
}

func TestFetchStatusErrors(t *testing.T) {
	answer := func(h http.HandlerFunc) string {
		path := socketPath(t)
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: h, ReadHeaderTimeout: time.Second}
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { _ = server.Close() })
		return path
	}
	garbage := func() string {
		path := socketPath(t)
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("\x00\xffgarbage\n"))
				_ = c.Close()
			}
		}()
		return path
	}
	stale := socketPath(t)
	staleSocket(t, stale)

	for _, tt := range []struct {
		name, path string
		want       string
		noDaemon   bool
	}{
		{"no socket", "/nonexistent/plegd.sock", "is plegd running?", true},
		{"stale socket", stale, "nobody listens", true},
		{"no path", "", "--control-socket", true},
		{"somebody else's", answer(http.NotFound), "404", false},
		{"no JSON", answer(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }), "something else than plegd's JSON", false},
		{"another version", answer(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"schema_version": 99, "plegd_version": "9\u001b[2J"}`))
		}), "version 99", false},
		{"endless answer", answer(func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}), "something else than plegd's JSON", false},
		{"at work", answer(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("ask again\n" + strings.Repeat("\x1b", 1<<20)))
		}), "answers: ask again", false},
		{"garbage", garbage(), "is it plegd's control socket?", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := FetchStatus(t.Context(), tt.path)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error: %v; want %q in it", err, tt.want)
			}
			if errors.Is(err, ErrNoDaemon) != tt.noDaemon {
				t.Errorf("ErrNoDaemon: %v, want %v: %v", !tt.noDaemon, tt.noDaemon, err)
			}
			if strings.ContainsAny(err.Error(), "\n\x1b\x00") {
				t.Errorf("the error is not fit for a terminal: %q", err)
			}
		})
	}
}

func TestFetchStatusTimeout(t *testing.T) {
	path := socketPath(t)
	l, err := net.Listen("unix", path) // never accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = FetchStatus(ctx, path)
	if err == nil || !strings.Contains(err.Error(), "stopped or stuck") || errors.Is(err, ErrNoDaemon) {
		t.Errorf("error: %v", err)
	}
}

func TestFetchStatusPermission(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may open everything")
	}
	path := socketPath(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := FetchStatus(t.Context(), path); err == nil || !strings.Contains(err.Error(), "as root") {
		t.Errorf("error: %v", err)
	}
}
