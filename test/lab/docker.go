//go:build e2e

package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sys "golang.org/x/sys/unix"
)

// Dockerd is a private Docker daemon behind a private cri-dockerd, with a
// containerd that it starts itself. It can be frozen, killed and started again.
type Dockerd struct {
	// Socket is the path of its API, Log of its log.
	Socket, Log string

	t    testing.TB
	ns   *namespace
	argv []string
	env  []string
	// cgroup is the parent of its pods' cgroups and of its own.
	cgroup string
	pid    int
	end    *exit
}

// dockerdPrograms is the directory of dockerd and its containerd, had once.
var dockerdPrograms = sync.OnceValues(func() (string, error) { return runScript("dockerd.sh") })

// newCRIDockerd starts a dockerd and prepares a real cri-dockerd, whose program
// PLEGD_E2E_CRI_DOCKERD names. It is used as a containerd is; its pods' shims are
// those of dockerd's containerd. OpenFiles limits cri-dockerd alone.
func newCRIDockerd(t testing.TB, options ContainerdOptions) *Containerd {
	t.Helper()
	RequireRoot(t)
	RequirePrograms(t, "runc", "prlimit")
	program := os.Getenv(criDockerdProgramEnv)
	if program == "" {
		Unable(t, criDockerdProgramEnv+" names no cri-dockerd")
	}
	dir := Dir(t)
	c := &Containerd{
		Socket:      filepath.Join(dir, "cri-dockerd.sock"),
		Log:         filepath.Join(dir, "cri-dockerd.log"),
		CNIConfig:   filepath.Join(dir, "cni", "lab.conflist"),
		Cgroup:      newCgroupName(),
		t:           t,
		env:         os.Environ(),
		importImage: func() {}, // dockerd has it before
	}
	t.Cleanup(func() { KeepLog(t, c.Log, "cri-dockerd") })
	for _, sub := range []string{"root", "cni", "state"} {
		must(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(dir, "cni", "loopback"), []byte(FakePlugin), 0o755))
	c.WriteCNIConfig()
	t.Cleanup(func() { removeCgroup(c.Cgroup) })
	c.ns = newNamespace(t, nsConfig{Tmpfs: []string{filepath.Join(dir, "root"), filepath.Join(dir, "state")}})
	c.docker = newDockerd(t, c.ns, dir, c.Cgroup)
	c.argv = []string{
		program, "--container-runtime-endpoint", "unix://" + c.Socket, "--docker-endpoint", "unix://" + c.docker.Socket,
		"--pod-infra-container-image", PauseImage, "--cri-dockerd-root-directory", filepath.Join(dir, "state"),
		"--network-plugin", "cni", "--cni-conf-dir", filepath.Join(dir, "cni"), "--cni-bin-dir", filepath.Join(dir, "cni"),
		"--cni-cache-dir", filepath.Join(dir, "state", "cni"), "--streaming-bind-addr", "127.0.0.1:0",
	}
	if n := strconv.Itoa(options.OpenFiles); options.OpenFiles > 0 {
		c.argv = append([]string{LookPath(t, "prlimit"), "--nofile=" + n + ":" + n}, c.argv...)
	}
	if !options.NotStarted {
		c.Start()
	}
	return c
}

// Dockerd is the Docker daemon behind the runtime, nil where it is no
// cri-dockerd.
func (c *Containerd) Dockerd() *Dockerd { return c.docker }

// newDockerd starts a dockerd that has the pause image.
func newDockerd(t testing.TB, ns *namespace, dir, cgroup string) *Dockerd {
	t.Helper()
	programs, err := dockerdPrograms()
	if err != nil {
		Unable(t, "dockerd cannot be had here: "+err.Error())
	}
	wrapper, config := filepath.Join(dir, "runc"), filepath.Join(dir, "daemon.json")
	must(t, os.WriteFile(wrapper, fmt.Appendf(nil, runcWrapper, LookPath(t, "runc")), 0o755))
	must(t, os.WriteFile(config, []byte(`{"live-restore": true}`), 0o644)) // or its end would be that of the pods
	exec, err := shortDir()                                                // the sockets below it are long
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(exec) })
	d := &Dockerd{
		Socket: filepath.Join(dir, "docker.sock"), Log: filepath.Join(dir, "dockerd.log"), t: t, ns: ns, cgroup: cgroup,
		env: append([]string{"PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + dir}, os.Environ()...),
		argv: []string{
			filepath.Join(programs, "dockerd"), "--config-file", config, "--host", "unix://" + filepath.Join(dir, "docker.sock"), "--group", "root",
			"--data-root", filepath.Join(dir, "root"), "--exec-root", exec, "--pidfile", filepath.Join(dir, "docker.pid"),
			"--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--userland-proxy=false",
			"--storage-driver", "overlay2", "--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", "/" + cgroup,
			"--add-runtime", "lab=" + wrapper, "--default-runtime", "lab",
		},
	}
	t.Cleanup(func() { KeepLog(t, d.Log, "dockerd") })
	d.Start()
	d.importImage()
	return d
}

// importImage gives dockerd the pause image.
func (d *Dockerd) importImage() {
	d.t.Helper()
	program, err := os.ReadFile(filepath.Join(filepath.Dir(ImageTar(d.t)), "pause"))
	must(d.t, err)
	layer, err := packTar([]tarFile{{name: "pause", mode: 0o755, data: program}})
	must(d.t, err)
	repository, tag := PauseImage[:strings.LastIndexByte(PauseImage, ':')], PauseImage[strings.LastIndexByte(PauseImage, ':')+1:]
	query := url.Values{"fromSrc": {"-"}, "repo": {repository}, "tag": {tag}, "changes": {`ENTRYPOINT ["/pause"]`}}
	must(d.t, d.call(d.t.Context(), http.MethodPost, "/images/create?"+query.Encode(), layer))
}

// call makes one request on a connection of its own.
func (d *Dockerd) call(ctx context.Context, method, path string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer closeQuietly(answer.Body)
	said, err := io.ReadAll(answer.Body)
	if err == nil && (answer.StatusCode/100 != 2 || bytes.Contains(said, []byte(`"errorDetail"`))) {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, said)
	}
	return err
}

// Start starts dockerd, after its death or for the first time, and waits until it
// answers.
func (d *Dockerd) Start() {
	d.t.Helper()
	d.Launch()
	Eventually(d.t, startLimit, "dockerd answers", func() error {
		if isClosed(d.end.done) {
			d.t.Fatalf("dockerd ended: %s\n%s", describe(d.end.status), Tail(d.Log, 20))
		}
		return d.call(d.t.Context(), http.MethodGet, "/_ping", nil)
	})
}

// Launch starts dockerd and does not wait until it answers.
func (d *Dockerd) Launch() {
	d.t.Helper()
	if d.end != nil && !isClosed(d.end.done) {
		d.t.Fatal("lab: dockerd runs already")
	}
	var err error
	if d.pid, d.end, err = d.ns.start(nsCommand{Argv: d.argv, Env: d.env, Log: d.Log}); err != nil {
		d.t.Fatalf("start dockerd: %v\n%s", err, Tail(d.Log, 20))
	}
	if err := joinCgroup(filepath.Join(d.cgroup, "docker"), d.pid); err != nil {
		d.t.Fatalf("give dockerd a cgroup of its own: %v", err)
	}
}

// Pid is dockerd's process id.
func (d *Dockerd) Pid() int { return d.pid }

// ContainerdPid is the process id of the containerd that dockerd has started.
func (d *Dockerd) ContainerdPid() int {
	d.t.Helper()
	pid := 0
	Eventually(d.t, startLimit, "dockerd has a containerd", func() error {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", d.pid))
		if err != nil {
			return err
		}
		var children []byte
		for _, task := range tasks {
			b, _ := os.ReadFile(task) // a thread may just have ended
			children = append(append(children, ' '), b...)
		}
		for _, field := range strings.Fields(string(children)) {
			comm, _ := os.ReadFile("/proc/" + field + "/comm")
			if strings.TrimSpace(string(comm)) == "containerd" {
				pid, err = strconv.Atoi(field)
				return err
			}
		}
		return fmt.Errorf("dockerd's children are %q", children)
	})
	return pid
}

// Kill ends dockerd by SIGKILL, and its containerd with it.
func (d *Dockerd) Kill() {
	d.t.Helper()
	must(d.t, syscall.Kill(d.pid, syscall.SIGKILL))
	select {
	case <-d.end.done:
	case <-time.After(20 * time.Second):
		d.t.Fatalf("dockerd does not end\n%s", Tail(d.Log, 20))
	}
}

// LimitFiles sets the soft limit of dockerd's open files, and returns what undoes
// it.
func (d *Dockerd) LimitFiles(soft uint64) (undo func()) {
	d.t.Helper()
	return LimitFiles(d.t, d.pid, soft)
}

// LimitFiles sets the soft limit of a process's open files, and returns what undoes it.
func LimitFiles(t testing.TB, pid int, soft uint64) (undo func()) {
	t.Helper()
	var was sys.Rlimit
	must(t, sys.Prlimit(pid, sys.RLIMIT_NOFILE, nil, &was))
	must(t, sys.Prlimit(pid, sys.RLIMIT_NOFILE, &sys.Rlimit{Cur: soft, Max: was.Max}, nil))
	return func() { must(t, sys.Prlimit(pid, sys.RLIMIT_NOFILE, &was, nil)) }
}

// StopInTurn stops a process and continues it after each half of period, and returns what
// ends that.
func StopInTurn(t testing.TB, pid int, period time.Duration) (end func()) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			time.Sleep(period / 2)
			_ = syscall.Kill(pid, syscall.SIGCONT)
			select {
			case <-stop:
				return
			case <-time.After(period / 2):
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(stop)
		<-ended
	})
}

// StopProcess is Freeze that returns what continues the process.
func StopProcess(t testing.TB, pid int) (cont func()) {
	t.Helper()
	Freeze(t, pid)
	return func() { Thaw(t, pid) }
}
