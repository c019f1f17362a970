package kubelet

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// fixture is a tree of fixtures: its /proc and its files.
type fixture struct {
	t    *testing.T
	root string
	pids int
}

// rootStatus is a part of the /proc/PID/status of root's processes.
const rootStatus = "Uid:\t0\t0\t0\t0\nNSpid:\t9\n"

func newFixture(t *testing.T) *fixture {
	// Short, so that sockets fit below it.
	root, err := os.MkdirTemp("", "n") //nolint:usetesting // a test's own directory is too long for a socket's path
	must.Do(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	n := &fixture{t: t, root: root}
	n.mkdir("/proc")
	n.process("systemd", "/sbin/init")
	return n
}

func (n *fixture) mkdir(path string) {
	n.t.Helper()
	must.Do(n.t, os.MkdirAll(n.root+path, 0o755))
}

func (n *fixture) file(path, content string) {
	n.t.Helper()
	n.mkdir(filepath.Dir(path))
	must.Do(n.t, os.WriteFile(n.root+path, []byte(content), 0o600))
}

func (n *fixture) process(comm string, args ...string) {
	n.t.Helper()
	n.pids++
	dir := "/proc/" + string(rune('0'+n.pids))
	n.file(dir+"/stat", evidencetest.StatLine(n.pids, comm, 'S', 1, 100))
	n.file(dir+"/cmdline", strings.Join(args, "\x00")+"\x00")
	n.file(dir+"/status", rootStatus)
	n.file(dir+"/cgroup", "0::/system.slice/"+comm+".service\n")
}

// foreign adds a process of another user.
func (n *fixture) foreign(comm string, args ...string) {
	n.process(comm, args...)
	n.file("/proc/"+string(rune('0'+n.pids))+"/status", strings.ReplaceAll(rootStatus, "\t0", "\t1000"))
}

func (n *fixture) socket(path string) {
	n.t.Helper()
	n.mkdir(filepath.Dir(path))
	l, err := net.Listen("unix", n.root+path)
	must.Do(n.t, err)
	n.t.Cleanup(func() { _ = l.Close() })
}

// find looks for the runtime; serves are the sockets that answer.
func (n *fixture) find(serves ...string) (Found, []string) {
	n.t.Helper()
	var asked []string
	f := &Finder{ProcFS: n.root + "/proc", Root: n.root, Serves: func(ctx context.Context, path string) bool {
		if ctx == nil || !strings.HasPrefix(path, n.root) {
			n.t.Errorf("asked whether %s serves", path)
		}
		path = strings.TrimPrefix(path, n.root)
		asked = append(asked, path)
		return slices.Contains(serves, path)
	}}
	return f.Find(n.t.Context()), asked
}

func TestFinderAsksTheKubelet(t *testing.T) {
	const usual = defaultConfig
	const config = "containerRuntimeEndpoint: unix:///run/from-config.sock\n"
	byArgs := Found{Endpoint: facts.Endpoint{Path: "/run/k.sock", Source: "the kubelet's arguments"}, Certain: true}
	byFile := func(file string) Found {
		return Found{Endpoint: facts.Endpoint{Path: "/run/from-config.sock", Source: file}, Certain: true}
	}
	for _, tt := range []struct {
		name  string
		args  []string
		files map[string]string
		want  Found
	}{
		{name: "arguments before files", args: []string{"--container-runtime-endpoint=unix:///run/k.sock"},
			files: map[string]string{usual: config}, want: byArgs},
		{name: "one dash, space", args: []string{"-container-runtime-endpoint", "/run/k.sock", "--v=2"}, want: byArgs},
		{name: "the last one counts", args: []string{"--container-runtime-endpoint=/run/first.sock",
			"--container-runtime-endpoint=/run/k.sock", "--container-runtime-endpoint-x=/run/x.sock"}, want: byArgs},
		{name: "the flag has no value", args: []string{"--config=" + usual, "--container-runtime-endpoint"},
			files: map[string]string{usual: config}, want: byFile(usual)},
		{name: "another configuration", args: []string{"--config=/etc/k/kubelet.yaml"},
			files: map[string]string{"/etc/k/kubelet.yaml": config, usual: "containerRuntimeEndpoint: /run/wrong.sock\n"},
			want:  byFile("/etc/k/kubelet.yaml")},
		{name: "a drop-in", args: []string{"--config-dir=/etc/k.d"},
			files: map[string]string{"/etc/k.d/sub/1.conf": config}, want: byFile("/etc/k.d/sub/1.conf")},
		{name: "no kubelet, its configuration", files: map[string]string{usual: config}, want: byFile(usual)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newFixture(t)
			n.process("kubelet-helper", "kubelet-helper", "--container-runtime-endpoint=/run/helper.sock")
			if tt.args != nil {
				n.foreign("kubelet", "kubelet", "--container-runtime-endpoint=/run/evil.sock") // a lower pid
				n.process("kubelet", append([]string{"/usr/bin/kubelet"}, tt.args...)...)
			}
			for path, content := range tt.files {
				n.file(path, content)
			}
			n.socket("/run/containerd/containerd.sock")
			got, asked := n.find("/run/containerd/containerd.sock")
			check.Same(t, got, tt.want, "found")
			if len(asked) > 0 {
				t.Errorf("asked %v whether they serve, though the place was named", asked)
			}
		})
	}
}

func TestFinderUsualSockets(t *testing.T) {
	const containerd, crio, k3s = "/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock"
	for _, tt := range []struct {
		name            string
		sockets, serves []string
		want            string
		certain         bool
		asked           []string
	}{
		{"one that serves", []string{containerd}, []string{containerd}, containerd, true, []string{containerd}},
		{"the first of two that serve", []string{k3s, crio}, []string{crio, k3s}, crio, true, []string{crio}},
		{"the second serves", []string{containerd, k3s}, []string{k3s}, k3s, true, []string{containerd, k3s}},
		{"none serves: the first that is there", []string{k3s, crio}, nil, crio, false, []string{crio, k3s}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newFixture(t)
			for _, s := range tt.sockets {
				n.socket(s)
			}
			n.file("/run/cri-dockerd.sock", "a file is no socket")
			got, asked := n.find(tt.serves...)
			if got.Path != n.root+tt.want || got.Certain || got.Serves != tt.certain || got.Source == "" || tt.certain && len(got.Searched) > 0 {
				t.Errorf("found %+v, want %s, certain %t", got, tt.want, tt.certain)
			}
			if !slices.Equal(asked, tt.asked) {
				t.Errorf("asked %v, want %v", asked, tt.asked)
			}
		})
	}
}

// TestFinderFindsNothing: it says where it looked, in one line each.
func TestFinderFindsNothing(t *testing.T) {
	n := newFixture(t)
	n.process("kubelet", "kubelet", "--container-runtime-endpoint=tcp://1.2.3.4:5", "--config=/etc/k.yaml")
	n.file("/etc/k.yaml", "a: [b\n: c")
	got, _ := n.find()
	if got.Path != "" || got.Certain || got.Source != "" {
		t.Errorf("found %+v", got)
	}
	all := strings.Join(got.Searched, "\n")
	for _, want := range append(slices.Clone(usualSockets), `the kubelet's arguments: "tcp://1.2.3.4:5"`, "/etc/k.yaml: ") {
		check.Contains(t, all, want, "searched")
	}

	page, err := os.ReadFile("../../../docs/operating.md")
	must.Do(t, err)
	listed := strings.NewReplacer(" (k3s, RKE2)", "").Replace(string(page))
	check.Contains(t, listed, "serves `runtime.v1`: "+strings.Join(usualSockets, ", ")+".", "docs/operating.md")

	// On an empty node it says the usual places, and nothing that is not there.
	got, _ = newFixture(t).find()
	if !slices.Equal(got.Searched, usualSockets) {
		t.Errorf("on an empty node it looked at %q", got.Searched)
	}
}

// TestFinderKubeletStuck: while the kubelet's arguments cannot be read, the
// search ends all the same with a guess, and no second read is
// begun.
func TestFinderKubeletStuck(t *testing.T) {
	n := newFixture(t)
	n.process("kubelet", "kubelet", "--container-runtime-endpoint=/run/k.sock")
	n.socket("/run/containerd/containerd.sock")
	cmdline := n.root + "/proc/2/cmdline"
	args, err := os.ReadFile(cmdline)
	must.Do(t, err)
	must.Do(t, os.Remove(cmdline))
	must.Do(t, unix.Mkfifo(cmdline, 0o600)) // a read of it blocks until somebody writes
	f := &Finder{ProcFS: n.root + "/proc", Root: n.root, Serves: func(context.Context, string) bool { return true }}
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if got := f.Find(ctx); got.Certain || got.Path != n.root+"/run/containerd/containerd.sock" {
			t.Errorf("found %+v, want the usual place as a guess", got)
		}
		cancel()
	}
	if w, err := os.OpenFile(cmdline, os.O_WRONLY, 0); err == nil { // release the readers
		_ = w.Close()
	}
	must.Do(t, os.Remove(cmdline))
	n.file("/proc/2/cmdline", string(args))
	if got := f.Find(t.Context()); !got.Certain || got.Path != "/run/k.sock" {
		t.Errorf("found %+v when the arguments can be read again", got)
	}
}
