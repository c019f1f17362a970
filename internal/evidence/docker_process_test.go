package evidence

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// TestDockerProcesses: this process stands for dockerd and for its containerd,
// and dockerd has a connection to the latter.
func TestDockerProcesses(t *testing.T) {
	needUnixDiag(t)
	dir := t.TempDir()
	docker := listenDocker(t)
	address := filepath.Join(dir, "containerd.sock")
	containerd, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = containerd.Close() })
	conn, err := net.Dial("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	end, err := containerd.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = end.Close() })

	path := docker.path
	d := newDockerProcesses(node.NewTable("/proc"), "/proc", "/sys", func() string { return path }, os.Getpid)
	v, err := d.gather(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	self := os.Getpid()
	if h := v.Daemon; h.Socket != docker.path || h.Queue == nil || !h.Queue.Listening || h.Process == nil || h.Process.PID != self || !h.DownSince.IsZero() {
		t.Errorf("dockerd: %+v", h)
	}
	h := v.Containerd
	if h == nil || h.Socket != address || h.Process == nil || h.Process.PID != self || d.containerdSocket() != address {
		t.Fatalf("its containerd: %+v at %q", h, d.containerdSocket())
	}
	// The process was learned by one connection, and no other is made.
	for range 3 {
		d.finder.searched = d.finder.searched.Add(-containerdAgain)
		if _, err := d.gather(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(pending(t, containerd.(*net.UnixListener))); n != 1 {
		t.Errorf("%d connections made to containerd, want 1", n)
	}
	// Another runtime's: nothing is known of it.
	path = ""
	if v, err := d.gather(t.Context()); v != nil || err == nil || d.containerdSocket() != "" {
		t.Errorf("not behind cri-dockerd: %+v, %v", v, err)
	}
}

// TestDockerHopDown: a process is stopped, continued and killed.
func TestDockerHopDown(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	// By a name of its own: another process of that name would be its successor.
	program := filepath.Join(t.TempDir(), "plegd-dockerd")
	if err := os.Symlink(sleep, program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	none := filepath.Join(t.TempDir(), "none")
	h := newDockerHop(node.NewTable("/proc"), "/proc", "/sys", func() string { return none }, func() int { return cmd.Process.Pid })
	look := func() *health.DockerProcess {
		t.Helper()
		v, err := h.look(t.Context())
		if err != nil || v.Process == nil {
			t.Fatalf("%+v, %v", v, err)
		}
		return v
	}
	if v := look(); !v.DownSince.IsZero() || v.Process.PID != cmd.Process.Pid {
		t.Fatalf("it runs: %+v", v)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return look().Process.Stopped() })
	since := look().DownSince
	if v := look(); since.IsZero() || !v.DownSince.Equal(since) {
		t.Errorf("stopped since %v, then since %v", since, v.DownSince)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return look().DownSince.IsZero() })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if v := look(); v.Process.Alive || v.DownSince.IsZero() {
		t.Errorf("killed: %+v", v)
	}
}

// TestContainerdFinder: where dockerd's containerd is, as far as the arguments of
// the processes tell.
func TestContainerdFinder(t *testing.T) {
	for _, tt := range []struct {
		name  string
		write func(root string)
		want  string
		pid   int
	}{
		{"by an argument", func(root string) {
			process(t, root, 50, 1, "dockerd", 'S', "/usr/bin/dockerd", "-H", "fd://", "--containerd=/run/x/containerd.sock")
		}, "/run/x/containerd.sock", 0},
		{"by a URL", func(root string) {
			process(t, root, 50, 1, "dockerd", 'S', "/usr/bin/dockerd", "--containerd", "unix:///run/x/containerd.sock")
		}, "/run/x/containerd.sock", 0},
		{"its own child", func(root string) {
			process(t, root, 50, 1, "dockerd", 'S', "/usr/bin/dockerd", "-H", "fd://")
			process(t, root, 60, 50, "containerd", 'S', "containerd", "--config", "/run/docker/containerd/containerd.toml")
			process(t, root, 61, 1, "containerd", 'S', "containerd", "--config", "/other/containerd.toml")
		}, "/run/docker/containerd/containerd.sock", 60},
		{"not known", func(root string) {
			process(t, root, 50, 1, "dockerd", 'S', "/usr/bin/dockerd", "-H", "fd://")
		}, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			process(t, root, 1, 0, "systemd", 'S')
			tt.write(root)
			f := newContainerdFinder(node.NewTable(root), root)
			f.dialed = 4711 // the machine's own containerd is left alone
			f.find(t.Context(), 50)
			if f.socket() != tt.want || tt.pid != 0 && f.pid() != tt.pid {
				t.Errorf("%q, pid %d; want %q, pid %d", f.socket(), f.pid(), tt.want, tt.pid)
			}
		})
	}
	for name, want := range map[string]bool{
		"/run/docker/containerd/containerd.sock": true, "/run/k3s/containerd.sock": true, "/run/docker/plugins/x.sock": false,
		"@/containerd-shim/x.sock": false, "/run/containerd/containerd.sock.ttrpc": false,
	} {
		if isContainerdSocket(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// TestDockerSocket: cri-dockerd's arguments say where dockerd is.
func TestDockerSocket(t *testing.T) {
	const otherwise = "/run/docker.sock"
	root := t.TempDir()
	process(t, root, 1, 0, "systemd", 'S')
	for i, tt := range []struct{ arg, want string }{
		{"--docker-endpoint=unix:///run/other/docker.sock", "/run/other/docker.sock"},
		{"--docker-endpoint=/var/run/d.sock", "/var/run/d.sock"},
		{"--docker-endpoint=tcp://10.0.0.1:2375", otherwise},
		{"--v=2", otherwise},
	} {
		process(t, root, 10+i, 1, "cri-dockerd", 'S', "/usr/bin/cri-dockerd", tt.arg)
		if got := dockerSocket(node.NewTable(root), 10+i, otherwise); got != tt.want {
			t.Errorf("%s: %s", tt.arg, got)
		}
	}
	if got := dockerSocket(node.NewTable(root), 0, otherwise); got != otherwise {
		t.Errorf("cri-dockerd is not known: %s", got)
	}
}
