package evidence

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// serveEach answers the request of each connection with text, and closes it.
func serveEach(l net.Listener, text string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		line, _ := bufio.NewReader(c).ReadString('\n')
		if line == "GET /_ping HTTP/1.1\r\n" || strings.HasPrefix(line, "PRI ") { // nothing else is asked
			_, _ = io.WriteString(c, text)
		}
		_ = c.Close()
	}
}

// onlyVersion handles the calls of a gRPC server that serves nothing: no other one is made.
func onlyVersion(t *testing.T) grpc.StreamHandler {
	return func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		check.Equal(t, method, runtimeapi.RuntimeService_Version_FullMethodName, "the call")
		return status.Error(codes.Unimplemented, "nothing is served")
	}
}

const pong = "HTTP/1.1 200 OK\r\nApi-Version: 1.48\r\nContent-Length: 2\r\n\r\nOK"

// hopDialerAt returns a Dialer of a hop behind the runtime that has yet to run.
func hopDialerAt(path func() string, ping bool, timeout time.Duration) *Dialer {
	return NewDialer(DialOptions{
		Path: path, ping: ping, anyGRPC: true, Period: probePeriod, Timeout: timeout, Done: func(facts.Probe) {},
	})
}

// probeOnce makes one probe.
func probeOnce(t *testing.T, d *Dialer) *facts.HopProbe {
	t.Helper()
	d.probeOnce(t.Context())
	return d.last.Load()
}

// TestProbeAnswers: what a hop answers, and what any program in its place may. A gRPC
// server answers although it serves nothing.
func TestProbeAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		ping         bool
		cause        facts.Cause
		detail       string
	}{
		{"ping", pong, true, facts.CauseNone, ""},
		{"ping, as 1.0", "HTTP/1.0 200 OK\r\n\r\nOK", true, facts.CauseNone, ""},
		{"an error", "HTTP/1.1 500 Internal Server Error\r\n\r\n", true, facts.CauseError, "500 Internal Server Error"},
		{"garbage", "SSH-2.0-OpenSSH_9.2\r\n", true, facts.CauseProtocol, "does not speak HTTP"},
		{"a line without end", strings.Repeat("x", 3*maxPong), true, facts.CauseClosed, "closed the connection"},
		{"nothing", "", true, facts.CauseClosed, "closed the connection"},
		{"gRPC", "", false, facts.CauseNone, ""},
		{"another protocol", pong, false, facts.CauseProtocol, "does not speak gRPC"},
	} {
		path := evidencetest.SocketPath(t)
		l, err := net.Listen("unix", path)
		must.Do(t, err)
		t.Cleanup(func() { _ = l.Close() })
		if tt.name == "gRPC" {
			s := grpc.NewServer(grpc.UnknownServiceHandler(onlyVersion(t)))
			t.Cleanup(s.Stop)
			go func() { _ = s.Serve(l) }()
		} else {
			go serveEach(l, tt.answer)
		}
		d := hopDialerAt(at(path), tt.ping, 5*time.Second)
		v := probeOnce(t, d)
		if v.OK != (tt.cause == facts.CauseNone) || v.Cause != tt.cause || !strings.Contains(v.Detail, tt.detail) || v.Connect <= 0 {
			t.Errorf("%s: %+v; want %q, %q", tt.name, v, tt.cause, tt.detail)
		}
		if peer := d.peer.Load(); peer == nil || peer.PeerPID != os.Getpid() {
			t.Errorf("%s: the peer is %+v", tt.name, peer)
		}
		if v.OK && (v.RPC <= 0 || v.Stage != "" || v.AnsweredAt.IsZero()) || !v.OK && v.Failures != 1 {
			t.Errorf("%s: %+v", tt.name, v)
		}
	}
}

// TestProbeWaits: one connection goes into the queue of a hop that does not accept, and
// shows when it is back. A result for one path does not apply to another.
func TestProbeWaits(t *testing.T) {
	path := evidencetest.SocketPath(t)
	l, err := net.Listen("unix", path)
	must.Do(t, err)
	t.Cleanup(func() { _ = l.Close() })
	d := hopDialerAt(func() string { return path }, true, time.Second)
	d.opts.Done = func(p facts.Probe) {
		if p.Stage == facts.StageSettings && p.Cause == facts.CauseTimeout && p.Failures == 1 {
			check.Equal(t, p.Detail, "connected, and GET /_ping was not answered", "what it lacks")
			go serveEach(l, pong)
		}
	}
	if v := probeOnce(t, d); !v.OK || v.Failures != 0 || !v.FailedSince.IsZero() || v.OKSince.IsZero() {
		t.Errorf("answered late: %+v", v)
	}
	path += "-and-another"
	if v := probeOnce(t, d); v.Cause != facts.CauseMissing || !v.AnsweredAt.IsZero() || v.Failures != 1 {
		t.Errorf("at another path: %+v", v)
	}
	path = ""
	if v := probeOnce(t, d); !v.At.IsZero() {
		t.Errorf("without a path: %+v", v)
	}
}

// TestDockerSockets: the next hop's socket is where the arguments of the hop before say, if that proves
// to be it and does not only have its name.
func TestDockerSockets(t *testing.T) {
	for _, tt := range []struct {
		name, comm, cri, dockerd, child, path string
		daemon, containerd                    string
		changed                               map[string]string // files of another identity; "exe" is a link
		doubt                                 string
	}{
		{"another runtime", "containerd", "containerd", "", "", "/run/cri-dockerd.sock", "", "", nil, ""},
		{"not seen, by its socket's name", "", "", "", "", "/run/cri-dockerd.sock", "/default", "", nil, ""},
		{"the defaults", "cri-dockerd", "cri-dockerd", "dockerd -H fd://", "containerd --config /x/containerd.toml", "/a", "/default", "/x/containerd.sock", nil, ""},
		{
			"arguments", "cri-dockerd", "cri-dockerd --docker-endpoint=unix:///a/../b.sock", "dockerd --containerd=/c.sock",
			"containerd --config /x/y.toml", "/a", "/b.sock", "/c.sock", nil, "",
		},
		{"not a unix socket", "cri-dockerd", "cri-dockerd --docker-endpoint tcp://host:1", "python3 --containerd /c.sock", "", "/a", "/default", "", nil, ""},
		{
			"a node with a pid namespace of its own", "cri-dockerd", "cri-dockerd --docker-endpoint=unix:///b.sock", "dockerd --containerd=/c.sock",
			"", "/a", "/b.sock", "/c.sock", map[string]string{"1/ns/pid": "pid:[1]", "7/ns/pid": "pid:[2]", "8/ns/pid": "pid:[2]"}, "",
		},
		{
			"another user's cri-dockerd", "cri-dockerd", "cri-dockerd --docker-endpoint=unix:///b.sock", "", "", "/a", "", "",
			map[string]string{"7/status": "Uid:\t1000\t1000\t1000\t1000\nNSpid:\t7\n"}, "pid 7 is not taken for cri-dockerd: it runs as uid 1000",
		},
		{
			"another program named dockerd", "cri-dockerd", "cri-dockerd --docker-endpoint=unix:///b.sock", "dockerd --containerd=/c.sock", "", "/a", "/b.sock", "",
			map[string]string{"8/exe": "/usr/bin/python3"}, "pid 8 is not taken for dockerd: its executable is /usr/bin/python3",
		},
		{
			"a container's dockerd", "cri-dockerd", "cri-dockerd --docker-endpoint=unix:///b.sock", "dockerd --containerd=/c.sock", "", "/a", "/b.sock", "",
			map[string]string{"8/cgroup": "0::/kubepods/besteffort/pod7d1f0a2e-1c5b-4b7e-9c53-3f1f7f3b1a00\n"}, "is a container's",
		},
		{
			"another mount namespace", "cri-dockerd", "cri-dockerd --docker-endpoint=unix:///b.sock", "dockerd --containerd=/c.sock", "", "/a", "/b.sock", "",
			map[string]string{"1/ns/mnt": "mnt:[1]", "7/ns/mnt": "mnt:[1]", "8/ns/mnt": "mnt:[2]", "8/exe": "/usr/bin/dockerd"}, "not on the node's file systems",
		},
		{
			"dockerd's child in a user namespace", "cri-dockerd", "cri-dockerd", "dockerd", "containerd --config /x/containerd.toml", "/a", "/default", "",
			map[string]string{"8/ns/user": "user:[1]", "9/ns/user": "user:[2]"}, "pid 9 is not taken for containerd: it is in another user namespace",
		},
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
		write(1, 0, "systemd")
		write(7, 1, tt.cri)
		write(8, 1, tt.dockerd)
		write(9, 8, tt.child)
		for name, content := range tt.changed {
			if strings.HasSuffix(name, "status") || strings.HasSuffix(name, "cgroup") {
				evidencetest.WriteTree(t, root, map[string]string{name: content})
				continue
			}
			must.Do(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755))
			must.Do(t, os.Symlink(content, filepath.Join(root, name)))
		}
		d := docker{
			table: proc.NewTable(root), otherwise: "/default",
			daemon: search{members: family.NewMembers(proc.NewTable(root))}, containerd: search{members: family.NewMembers(proc.NewTable(root))},
			runtime: &hop{path: at(tt.path), process: sampledAt(root, 7)}, dockerd: &hop{process: sampledAt(root, 8)},
		}
		check.Equal(t, d.daemonSocket(), tt.daemon, "%s: dockerd at", tt.name)
		doubted := d.daemon.doubt.Load()
		d.runtime.process = processWith(proc.Process{})
		if got := d.daemonSocket(); d.daemon.socket != "" && got != tt.daemon {
			t.Errorf("%s: the runtime has ended: dockerd at %q, want %q", tt.name, got, tt.daemon)
		}
		check.Equal(t, d.containerdSocket(), tt.containerd, "%s: containerd at", tt.name)
		doubt := cmp.Or(d.containerd.doubt.Load(), doubted, &facts.Source{})
		if !strings.Contains(doubt.Err, tt.doubt) || tt.doubt == "" && doubt.Err != "" || doubt.Up {
			t.Errorf("%s: %+v, want %q", tt.name, doubt, tt.doubt)
		}
	}
}

// TestDockersContainerdUnread: while it cannot be read whether dockerd has started a containerd, the last socket stays
// and the system's is not taken for it.
func TestDockersContainerdUnread(t *testing.T) {
	for _, file := range []string{"9/cmdline", "9/status"} {
		root := t.TempDir()
		process(t, root, 1, 0, "systemd", 'S')
		process(t, root, 8, 1, "dockerd", 'S', "dockerd", "-H", "fd://")
		process(t, root, 9, 8, "containerd", 'S', "containerd", "--config", "/x/containerd.toml")
		dockerAt := func() *docker {
			table := proc.NewTable(root)
			return &docker{
				table: table, containerd: search{members: family.NewMembers(table)},
				runtime: &hop{process: processWith(proc.Process{})}, dockerd: &hop{process: sampledAt(root, 8)},
			}
		}
		check.Equal(t, dockerAt().containerdSocket(), "/x/containerd.sock", "readable")
		path := filepath.Join(root, file)
		must.Do(t, os.Remove(path))
		must.Do(t, os.Symlink(filepath.Base(path), path)) // a loop cannot be read, by root either
		d := dockerAt()
		d.containerd.socket = "/last.sock"
		check.Equal(t, d.containerdSocket(), "/last.sock", "%s cannot be read", file)
		doubt := cmp.Or(d.containerd.doubt.Load(), &facts.Source{})
		check.Equal(t, strings.Contains(doubt.Err, "could not be read"), true, "%s: %q", file, doubt.Err)
	}
}

// TestHopIsItsProcess: a program that takes a hop's socket over is its listener, and not
// the hop, while the hop's process lives.
func TestHopIsItsProcess(t *testing.T) {
	path := evidencetest.SocketPath(t)
	l, err := net.Listen("unix", path)
	must.Do(t, err)
	defer l.Close()
	go serveEach(l, pong)
	h := &hop{
		prefix: "x_", caution: "careful", procfs: "/proc", sysfs: "/sys", table: proc.NewTable("/proc"), path: at(path),
		dialer: hopDialerAt(at(path), true, probePeriod), dialed: func() *cri.DialResult { return nil },
	}
	h.watch()
	e := facts.Evidence{Sources: map[string]facts.Source{}}
	sample := func() facts.Hop {
		h.dialer.probeOnce(t.Context())
		for range 2 {
			for _, s := range h.sources {
				s.(interface{ sample(context.Context, func()) }).sample(t.Context(), func() {})
			}
		}
		h.facts(&e)
		return e.Hops[len(e.Hops)-1]
	}
	if f := sample(); f.Socket != path || f.Caution != "careful" || !f.Answer.OK || f.Process.PID != os.Getpid() || f.Process.OpenFDs <= 0 {
		t.Errorf("%+v, %+v, %+v", f, f.Answer, f.Process)
	}
	h.dialer.peer.Store(&cri.DialResult{PeerPID: 1 << 21})
	if f := sample(); f.Process.PID != os.Getpid() || e.Sources["x"].Err != "" {
		t.Errorf("another process at the socket: %+v, %+v", f.Process, e.Sources)
	}
}
