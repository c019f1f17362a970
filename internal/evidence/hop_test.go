package evidence

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/plegd/plegd/internal/evidence/evidencetest"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// serveEach answers each connection to a new socket by a function.
func serveEach(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	path := evidencetest.SocketPath(t)
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
			go serve(c)
		}
	}()
	return path
}

// says reads a request and answers with text.
func says(text string) func(net.Conn) {
	return func(c net.Conn) {
		defer func() { _ = c.Close() }()
		if n, _ := c.Read(make([]byte, 1024)); n > 0 {
			_, _ = io.WriteString(c, text)
		}
	}
}

const pong = "HTTP/1.1 200 OK\r\nApi-Version: 1.48\r\nContent-Length: 2\r\n\r\nOK"

func proberAt(path string, e exchange) *prober {
	return &prober{
		find: func(context.Context) string { return path }, exchange: e, timeout: 100 * time.Millisecond, queuedFor: time.Minute,
	}
}

func probe(t *testing.T, p *prober) *health.HopProbe {
	t.Helper()
	out, err := p.gather(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.drop)
	return out
}

// TestProbeAnswers: what a hop answers, and what any program in its place may.
func TestProbeAnswers(t *testing.T) {
	settings := "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00"
	for _, tt := range []struct {
		name, answer string
		exchange     exchange
		cause        health.Cause
		detail       string
	}{
		{"ping", pong, dockerPing, health.CauseNone, ""},
		{"ping, as 1.0", "HTTP/1.0 200 OK\r\n\r\nOK", dockerPing, health.CauseNone, ""},
		{"an error", "HTTP/1.1 500 Internal Server Error\r\n\r\n", dockerPing, health.CauseError, "500 Internal Server Error"},
		{"garbage", "SSH-2.0-OpenSSH_9.2\r\n", dockerPing, health.CauseProtocol, "does not speak HTTP"},
		{"a line without end", strings.Repeat("x", 3*maxAnswer), dockerPing, health.CauseProtocol, "does not speak HTTP"},
		{"half a word", "HT", dockerPing, health.CauseProtocol, "does not speak HTTP"},
		{"nothing", "", dockerPing, health.CauseClosed, "closed the connection"},
		{"SETTINGS", settings, grpcHello, health.CauseNone, ""},
		{"another protocol", pong, grpcHello, health.CauseProtocol, "does not speak HTTP/2"},
	} {
		p := proberAt(serveEach(t, says(tt.answer)), tt.exchange)
		p.timeout = 5 * time.Second
		v := probe(t, p)
		if v.OK != (tt.cause == health.CauseNone) || v.Cause != tt.cause || !strings.Contains(v.Detail, tt.detail) || v.Connect <= 0 || p.queued != nil {
			t.Errorf("%s: %+v; want %q, %q", tt.name, v, tt.cause, tt.detail)
		}
		pid, _ := p.newest()
		if own := int64(os.Getpid()); int64(pid) != own || (p.server.Load() == own) != (tt.cause != health.CauseProtocol) {
			t.Errorf("%s: listener %d, hop %d", tt.name, pid, p.server.Load())
		}
		if v.OK && (v.RPC <= 0 || v.Stage != "" || v.AnsweredAt.IsZero()) || !v.OK && (v.Stage != health.StageRPC || v.Failures != 1) {
			t.Errorf("%s: %+v", tt.name, v)
		}
	}
}

// TestProbeGRPC: a real gRPC server answers although it serves nothing.
func TestProbeGRPC(t *testing.T) {
	path := evidencetest.SocketPath(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	t.Cleanup(s.Stop)
	go func() { _ = s.Serve(l) }()
	p := proberAt(path, grpcHello)
	p.timeout = 5 * time.Second
	if v := probe(t, p); !v.OK {
		t.Errorf("%+v", v)
	}
}

// TestProbeConnect: no connection can be made.
func TestProbeConnect(t *testing.T) {
	dir := t.TempDir()
	regular := filepath.Join(dir, "regular")
	if err := os.WriteFile(regular, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	full := evidencetest.SocketPath(t)
	evidencetest.ListenAt(t, full, 0)
	evidencetest.Connect(t, full, 1)
	for path, cause := range map[string]health.Cause{
		filepath.Join(dir, "none"): health.CauseMissing, regular: health.CauseNotSocket, full: health.CauseQueueFull,
	} {
		p := proberAt(path, dockerPing)
		first := probe(t, p)
		again := probe(t, p)
		if first.Stage != health.StageConnect || first.Cause != cause || again.Failures != 2 || !again.FailedSince.Equal(first.At) || p.queued != nil {
			t.Errorf("%s: %+v, %+v; want %s", path, first, again, cause)
		}
	}
}

// TestProbeWaits: one connection goes into the queue of a hop that does not accept, and
// shows when it is back; after a minute another one is made.
func TestProbeWaits(t *testing.T) {
	path := evidencetest.SocketPath(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	p := proberAt(path, dockerPing)
	first := probe(t, p)
	if first.OK || first.Stage != health.StageSettings || first.Cause != health.CauseTimeout || first.Failures != 1 {
		t.Fatalf("not accepted: %+v", first)
	}
	for range 3 {
		if v := probe(t, p); *v != *first {
			t.Errorf("%+v; want the same probe still: %+v", v, first)
		}
	}
	p.queuedFor = 0
	if v := probe(t, p); v.Failures != 2 || !v.FailedSince.Equal(first.At) {
		t.Errorf("a minute later: %+v", v)
	}
	p.queuedFor = time.Minute
	var accepted atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			go says(pong)(c)
		}
	}()
	v := probe(t, p)
	for until := time.Now().Add(5 * time.Second); !v.OK && time.Now().Before(until); {
		v = probe(t, p)
	}
	if !v.OK || v.Failures != 0 || !v.FailedSince.IsZero() || v.OKSince.IsZero() || p.queued != nil || accepted.Load() > 2 {
		t.Errorf("answered late: %+v, %d connections", v, accepted.Load())
	}
}

// TestProbePath: nothing is dialed while there is no path, and what was known of one
// path says nothing of another.
func TestProbePath(t *testing.T) {
	path := ""
	p := proberAt("", dockerPing)
	p.find = func(context.Context) string { return path }
	if _, err := p.gather(t.Context()); err != ErrNoData { //nolint:errorlint // itself
		t.Errorf("without a path: %v", err)
	}
	path = filepath.Join(t.TempDir(), "one")
	probe(t, p)
	probe(t, p)
	path += "-and-another"
	if v := probe(t, p); v.Failures != 1 || p.path() != path {
		t.Errorf("at another path: %+v", v)
	}
}

// TestDockerSockets: the next hop's socket is where the arguments of the hop before say.
func TestDockerSockets(t *testing.T) {
	for _, tt := range []struct {
		name, comm, cri, dockerd, child, path string
		daemon, containerd                    string
	}{
		{"another runtime", "containerd", "containerd", "", "", "/run/cri-dockerd.sock", "", ""},
		{"not seen, by its socket's name", "", "", "", "", "/run/cri-dockerd.sock", "/default", ""},
		{"the defaults", "cri-dockerd", "cri-dockerd", "dockerd -H fd://", "containerd --config /x/containerd.toml", "/a", "/default", "/x/containerd.sock"},
		{
			"arguments", "cri-dockerd", "cri-dockerd --docker-endpoint=unix:///a/../b.sock", "dockerd --containerd=/c.sock",
			"containerd --config /x/y.toml", "/a", "/b.sock", "/c.sock",
		},
		{"not a unix socket", "cri-dockerd", "cri-dockerd --docker-endpoint tcp://host:1", "python3 --containerd /c.sock", "", "/a", "/default", ""},
	} {
		root := t.TempDir()
		write := func(pid, ppid int, args string) {
			comm, _, _ := strings.Cut(args, " ")
			if args != "" {
				dir := string(rune('0'+pid)) + "/"
				evidencetest.WriteTree(t, root, map[string]string{
					dir + "stat": evidencetest.StatLine(pid, comm, 'S', ppid, 9), dir + "cmdline": strings.ReplaceAll(args, " ", "\x00") + "\x00",
				})
			}
		}
		write(7, 1, tt.cri)
		write(8, 1, tt.dockerd)
		write(9, 8, tt.child)
		d := docker{
			table: node.NewTable(root), runtime: func() int { return 7 }, daemon: func() int { return 8 },
			path: func() string { return tt.path }, otherwise: "/default",
		}
		if got := d.daemonSocket(t.Context()); got != tt.daemon {
			t.Errorf("%s: dockerd at %q, want %q", tt.name, got, tt.daemon)
		}
		if got := d.containerdSocket(t.Context()); got != tt.containerd {
			t.Errorf("%s: containerd at %q, want %q", tt.name, got, tt.containerd)
		}
	}
}

// TestHopIsItsProcess: a program that takes a hop's socket over is its listener, and not
// the hop, while the hop's process lives.
func TestHopIsItsProcess(t *testing.T) {
	path := serveEach(t, says(pong))
	h := newHopBehind(hopOptions{name: "x", caution: "careful", procfs: "/proc", sysfs: "/sys", table: node.NewTable("/proc")},
		func(context.Context) string { return path }, dockerPing)
	if _, ok := h.facts(); ok {
		t.Error("there are facts before the first sample")
	}
	sample := func() health.Hop {
		for range 2 {
			for _, s := range h.sources {
				s.(interface{ sample(context.Context) }).sample(t.Context())
			}
		}
		facts, ok := h.facts()
		if !ok {
			t.Fatal("no facts")
		}
		return facts
	}
	if f := sample(); f.Socket != path || f.Caution != "careful" || !f.Answer.OK || f.Process.PID != os.Getpid() || f.Process.OpenFDs <= 0 {
		t.Errorf("%+v, %+v, %+v", f, f.Answer, f.Process)
	}
	h.probe.server.Store(1 << 21)
	if f := sample(); f.Process.PID != os.Getpid() || h.source().Err != "" {
		t.Errorf("another process at the socket: %+v, %+v", f.Process, h.source())
	}
}
