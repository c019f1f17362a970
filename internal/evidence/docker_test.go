package evidence

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// fakeDocker is a dockerd that does with each connection what the test says.
type fakeDocker struct {
	path     string
	listener *net.UnixListener
	serve    atomic.Pointer[func(net.Conn)]
	accepted atomic.Int64
}

func startDocker(t *testing.T, serve func(net.Conn)) *fakeDocker {
	t.Helper()
	f := listenDocker(t)
	f.serve.Store(&serve)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := f.listener.Accept()
			if err != nil {
				return
			}
			f.accepted.Add(1)
			go (*f.serve.Load())(c)
		}
	}()
	t.Cleanup(func() {
		_ = f.listener.Close()
		<-done
	})
	return f
}

// listenDocker is one that listens and accepts nothing.
func listenDocker(t *testing.T) *fakeDocker {
	t.Helper()
	var err error
	f := &fakeDocker{path: filepath.Join(t.TempDir(), "docker.sock")}
	if f.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: f.path, Net: "unix"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.listener.Close() })
	return f
}

// says reads a request and answers with text.
func says(text string) func(net.Conn) {
	return func(c net.Conn) {
		defer func() { _ = c.Close() }()
		buf := make([]byte, 1024)
		if n, _ := c.Read(buf); n == 0 {
			return
		}
		_, _ = io.WriteString(c, text)
	}
}

const pong = "HTTP/1.1 200 OK\r\nApi-Version: 1.48\r\nContent-Length: 2\r\n\r\nOK"

func dockerAt(path string) *docker {
	return &docker{
		socket:  func() string { return path },
		timeout: 100 * time.Millisecond, queuedFor: time.Minute,
	}
}

func probeDocker(t *testing.T, d *docker) *health.Probe {
	t.Helper()
	p, err := d.gather(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.drop)
	return p
}

func TestDockerAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		cause        health.Cause
		detail       string
	}{
		{"well", pong, health.CauseNone, ""},
		{"well, as 1.0", "HTTP/1.0 200 OK\r\n\r\nOK", health.CauseNone, ""},
		{"without a phrase", "HTTP/1.1 200\r\n\r\nOK", health.CauseNone, ""},
		{"with an error", "HTTP/1.1 500 Internal Server Error\r\n\r\n", health.CauseError, "500 Internal Server Error"},
		{"with garbage", "SSH-2.0-OpenSSH_9.2\r\n", health.CauseProtocol, "does not speak HTTP"},
		{"with a line without end", strings.Repeat("x", 3*pingBytes), health.CauseProtocol, "does not speak HTTP"},
		{"with half a word", "HT", health.CauseProtocol, "does not speak HTTP"},
		{"not at all", "", health.CauseClosed, "closed the connection"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := startDocker(t, says(tt.answer))
			d := dockerAt(f.path)
			d.timeout = 5 * time.Second
			p := probeDocker(t, d)
			if p.OK != (tt.cause == health.CauseNone) || p.Cause != tt.cause || !strings.Contains(p.Detail, tt.detail) || p.Connect <= 0 {
				t.Errorf("%+v; want %q, %q", p, tt.cause, tt.detail)
			}
			if p.OK && (p.RPC <= 0 || p.Stage != "" || !p.FailedSince.IsZero()) || !p.OK && (p.Stage != health.StageRPC || p.Failures != 1 || !p.FailedSince.Equal(p.At)) {
				t.Errorf("%+v", p)
			}
			if d.queued != nil {
				t.Error("it keeps a connection that was answered")
			}
		})
	}
}

func TestDockerConnect(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	regular := filepath.Join(dir, "docker.sock")
	if err := os.WriteFile(regular, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, cause := range map[string]health.Cause{
		filepath.Join(dir, "no.sock"): health.CauseMissing,
		stale:                         health.CauseRefused,
		regular:                       health.CauseNotSocket,
	} {
		d := dockerAt(path)
		first := probeDocker(t, d)
		if first.OK || first.Stage != health.StageConnect || first.Cause != cause || first.Failures != 1 {
			t.Errorf("%s: %+v; want %s", path, first, cause)
		}
		if again := probeDocker(t, d); again.Failures != 2 || !again.FailedSince.Equal(first.At) {
			t.Errorf("%s: %+v; want the second failure since %s", path, again, first.At)
		}
	}
}

// TestDockerQueueFull: connect fails at once, and leaves nothing behind.
func TestDockerQueueFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "docker.sock")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil { // one fits
		t.Fatal(err)
	}
	other, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	d := dockerAt(path)
	if p := probeDocker(t, d); p.Stage != health.StageConnect || p.Cause != health.CauseQueueFull || d.queued != nil {
		t.Errorf("%+v", p)
	}
}

// pending returns the connections that wait in a listener's queue, by taking
// them out.
func pending(t *testing.T, l *net.UnixListener) []net.Conn {
	t.Helper()
	var out []net.Conn
	for {
		if err := l.SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		out = append(out, c)
	}
}

// TestDockerStuck: one connection goes into the queue of a dockerd that does
// not accept, and that one tells when it is back.
func TestDockerStuck(t *testing.T) {
	f := listenDocker(t)
	d := dockerAt(f.path)
	first := probeDocker(t, d)
	if first.OK || first.Stage != health.StageRPC || first.Cause != health.CauseTimeout || first.Failures != 1 {
		t.Fatalf("not accepted: %+v", first)
	}
	for range 4 {
		if p := probeDocker(t, d); *p != *first {
			t.Errorf("%+v; want the same probe still: %+v", p, first)
		}
	}
	queue := pending(t, f.listener)
	if len(queue) != 1 {
		t.Fatalf("%d connections in the queue after 5 probes; want 1", len(queue))
	}
	go says(pong)(queue[0])
	p := probeDocker(t, d)
	for until := time.Now().Add(5 * time.Second); !p.OK && time.Now().Before(until); {
		p = probeDocker(t, d)
	}
	if !p.OK || p.Stage != "" || p.Cause != "" || p.Failures != 0 || !p.FailedSince.IsZero() || !p.At.Equal(first.At) {
		t.Errorf("answered late: %+v", p)
	}
	if d.queued != nil {
		t.Error("it keeps a connection that was answered")
	}
}

// TestDockerStuckOn: after a minute it tries another one.
func TestDockerStuckOn(t *testing.T) {
	f := listenDocker(t)
	d := dockerAt(f.path)
	first := probeDocker(t, d)
	d.queuedFor = 0
	next := probeDocker(t, d)
	if next.Failures != 2 || !next.FailedSince.Equal(first.At) || !next.At.After(first.At) {
		t.Errorf("%+v after %+v", next, first)
	}
	if n := len(pending(t, f.listener)); n != 2 {
		t.Errorf("%d connections in the queue; want 2", n)
	}
}

// TestDockerHangs: it accepts and does not answer, answers badly in the end, or
// dies.
func TestDockerHangs(t *testing.T) {
	release := make(chan string)
	f := startDocker(t, func(c net.Conn) {
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, <-release)
	})
	d := dockerAt(f.path)
	first := probeDocker(t, d)
	if first.Cause != health.CauseTimeout || !strings.Contains(first.Detail, "within 100ms") {
		t.Fatalf("%+v", first)
	}
	release <- "HTTP/1.1 500 Internal Server Error\r\n\r\n"
	p := probeDocker(t, d)
	for until := time.Now().Add(5 * time.Second); p.Cause == health.CauseTimeout && time.Now().Before(until); {
		p = probeDocker(t, d)
	}
	if p.OK || p.Cause != health.CauseError || p.Failures != 1 || !p.FailedSince.Equal(first.At) {
		t.Errorf("answered with 500 in the end: %+v", p)
	}
	p = probeDocker(t, d)
	if p.Failures != 2 || f.accepted.Load() != 2 {
		t.Errorf("%+v, %d connections; want the second failure on the second connection", p, f.accepted.Load())
	}
	_ = f.listener.Close()
	release <- ""
	for until := time.Now().Add(5 * time.Second); p.Cause == health.CauseTimeout && time.Now().Before(until); {
		p = probeDocker(t, d)
	}
	if p.Cause != health.CauseMissing || p.Stage != health.StageConnect || p.Failures != 3 {
		t.Errorf("after its end: %+v", p)
	}
}

// TestDockerNotActive: with another runtime nobody is asked.
func TestDockerNotActive(t *testing.T) {
	f := startDocker(t, says(pong))
	active, path := false, f.path
	w := NewDocker(node.NewTable("/proc"), "/proc", "/sys", func() string { return path }, func() bool { return active }).Ping
	askOnce(t, w)
	if _, ok := w.Source(); ok || w.Value() != nil || f.accepted.Load() != 0 {
		t.Errorf("not active: %+v, %d connections", w.Value(), f.accepted.Load())
	}
	active = true
	askOnce(t, w)
	if s, ok := w.Source(); !ok || !s.Up || w.Value() == nil || !w.Value().OK {
		t.Errorf("active: %+v, %+v", s, w.Value())
	}
	path = ""
	askOnce(t, w)
	if _, ok := w.Source(); ok || w.Value() != nil {
		t.Errorf("without a socket: %+v", w.Value())
	}
	// What was known of another socket says nothing of this one.
	path = filepath.Join(t.TempDir(), "none")
	askOnce(t, w)
	askOnce(t, w)
	path = filepath.Join(t.TempDir(), "another")
	askOnce(t, w)
	if v := w.Value(); v == nil || v.Failures != 1 {
		t.Errorf("at another socket: %+v", v)
	}
}

func TestDockerDefaults(t *testing.T) {
	d := NewDocker(node.NewTable("/proc"), "/proc", "/sys", func() string { return filepath.Join(t.TempDir(), "none") }, func() bool { return true })
	if facts(d) != nil || d.ContainerdSocket() != "" {
		t.Errorf("not asked yet: %+v, %q", facts(d), d.ContainerdSocket())
	}
	askOnce(t, d.Ping)
	askOnce(t, d.Processes)
	v := facts(d)
	if v == nil || v.Cause != health.CauseMissing || !v.AnsweredAt.IsZero() || v.Daemon == nil || v.Daemon.Queue == nil || v.Daemon.Queue.Listening || v.Containerd != nil {
		t.Errorf("%+v", v)
	}
}

// facts are what is stored of both watches.
func facts(d *Docker) *health.Docker {
	var e health.Evidence
	d.Ping.Facts(&e)
	d.Processes.Facts(&e)
	return e.Docker
}

func askOnce[T any](t *testing.T, w *Watch[T]) {
	t.Helper()
	w.sample(t.Context())
}
