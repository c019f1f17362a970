//go:build e2e

package runtime

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/plegd/plegd/test/lab"
)

// Dockerd is a private Docker daemon behind a private cri-dockerd, with a
// containerd that it starts itself. It can be frozen, killed and started again.
type Dockerd struct {
	// Socket is the path of its API.
	Socket string
	lab.Process
}

// dockerdPrograms is the directory of dockerd and its containerd, had once.
var dockerdPrograms = sync.OnceValues(func() (string, error) { return lab.RunScript("dockerd.sh") })

// newCRIDockerd starts a dockerd and prepares a real cri-dockerd, whose program PLEGD_E2E_CRI_DOCKERD names. It is
// used as a containerd is; its pods' shims are those of dockerd's containerd. OpenFiles limits cri-dockerd alone.
func newCRIDockerd(t testing.TB, options ContainerdOptions) *Containerd {
	t.Helper()
	lab.RequireRoot(t)
	lab.RequirePrograms(t, "runc", "prlimit")
	program := os.Getenv(criDockerdProgramEnv)
	if program == "" {
		lab.Unable(t, criDockerdProgramEnv+" names no cri-dockerd")
	}
	dir := lab.Dir(t)
	c := &Containerd{
		Socket:      filepath.Join(dir, "cri-dockerd.sock"),
		Log:         filepath.Join(dir, "cri-dockerd.log"),
		CNIConfig:   filepath.Join(dir, "cni", "lab.conflist"),
		importImage: func() {}, // dockerd has it before
	}
	c.setProcess(t, "cri-dockerd")
	for _, sub := range []string{"root", "cni", "state"} {
		lab.Must(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	lab.Must(t, os.WriteFile(filepath.Join(dir, "cni", "loopback"), []byte(FakePlugin), 0o755))
	c.WriteCNIConfig()
	c.Namespace = lab.NewNamespace(t, lab.NamespaceConfig{Tmpfs: []string{filepath.Join(dir, "root"), filepath.Join(dir, "state")}})
	c.docker = newDockerd(t, c.Namespace, dir, c.Cgroup)
	c.Argv = []string{
		program, "--container-runtime-endpoint", "unix://" + c.Socket, "--docker-endpoint", "unix://" + c.docker.Socket,
		"--pod-infra-container-image", PauseImage, "--cri-dockerd-root-directory", filepath.Join(dir, "state"),
		"--network-plugin", "cni", "--cni-conf-dir", filepath.Join(dir, "cni"), "--cni-bin-dir", filepath.Join(dir, "cni"),
		"--cni-cache-dir", filepath.Join(dir, "state", "cni"), "--streaming-bind-addr", "127.0.0.1:0",
	}
	c.limitFiles(options.OpenFiles)
	if !options.NotStarted {
		c.Start()
	}
	return c
}

// Dockerd is the Docker daemon behind the runtime, nil where it is no cri-dockerd.
func (c *Containerd) Dockerd() *Dockerd { return c.docker }

// newDockerd starts a dockerd that has the pause image.
func newDockerd(t testing.TB, ns *lab.Namespace, dir, cgroup string) *Dockerd {
	t.Helper()
	programs, err := dockerdPrograms()
	if err != nil {
		lab.Unable(t, "dockerd cannot be had here: "+err.Error())
	}
	wrapper, config := filepath.Join(dir, "runc"), filepath.Join(dir, "daemon.json")
	lab.Must(t, os.WriteFile(wrapper, fmt.Appendf(nil, runcWrapper, lab.LookPath(t, "runc")), 0o755))
	lab.Must(t, os.WriteFile(config, []byte(`{"live-restore": true}`), 0o644)) // or its end would be that of the pods
	d := &Dockerd{Socket: filepath.Join(dir, "docker.sock"), Process: lab.Process{
		TB: t, Namespace: ns, Name: "dockerd", Log: filepath.Join(dir, "dockerd.log"), Cgroup: filepath.Join(cgroup, "docker"),
		Env: append([]string{"PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + dir}, os.Environ()...),
		Argv: []string{
			filepath.Join(programs, "dockerd"), "--config-file", config, "--host", "unix://" + filepath.Join(dir, "docker.sock"), "--group", "root",
			"--data-root", filepath.Join(dir, "root"), "--exec-root", lab.Dir(t), "--pidfile", filepath.Join(dir, "docker.pid"),
			"--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--userland-proxy=false",
			"--storage-driver", "overlay2", "--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", "/" + cgroup,
			"--add-runtime", "lab=" + wrapper, "--default-runtime", "lab",
		},
	}}
	t.Cleanup(func() { lab.KeepLog(t, d.Log, "dockerd") })
	d.Start()
	d.importImage()
	return d
}

// importImage gives dockerd the pause image.
func (d *Dockerd) importImage() {
	d.TB.Helper()
	program, err := os.ReadFile(filepath.Join(filepath.Dir(ImageTar(d.TB)), "pause"))
	lab.Must(d.TB, err)
	layer, err := packTar([]tarFile{{name: "pause", mode: 0o755, data: program}})
	lab.Must(d.TB, err)
	repository, tag := PauseImage[:strings.LastIndexByte(PauseImage, ':')], PauseImage[strings.LastIndexByte(PauseImage, ':')+1:]
	query := url.Values{"fromSrc": {"-"}, "repo": {repository}, "tag": {tag}, "changes": {`ENTRYPOINT ["/pause"]`}}
	lab.Must(d.TB, d.call(d.TB.Context(), http.MethodPost, "/images/create?"+query.Encode(), layer))
}

// call makes one request on a connection of its own.
func (d *Dockerd) call(ctx context.Context, method, path string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, lab.StartLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := lab.UnixClient(d.Socket, 0).Do(request)
	if err != nil {
		return err
	}
	defer lab.Close(answer.Body)
	said, err := io.ReadAll(answer.Body)
	if err == nil && (answer.StatusCode/100 != 2 || bytes.Contains(said, []byte(`"errorDetail"`))) {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, said)
	}
	return err
}

// Start starts dockerd, after its death or for the first time, and waits until it
// answers. Its end is that of its containerd.
func (d *Dockerd) Start() {
	d.TB.Helper()
	d.Launch()
	d.Await(func() error { return d.call(d.TB.Context(), http.MethodGet, "/_ping", nil) })
}

// Configure starts dockerd again with another daemon.json.
func (d *Dockerd) Configure(text string) {
	d.TB.Helper()
	d.Kill()
	config := d.Argv[slices.Index(d.Argv, "--config-file")+1]
	lab.Must(d.TB, os.WriteFile(config, []byte(text), 0o644))
	d.Start()
	d.importImage()
}

// ContainerdPid is the process id of the containerd that dockerd has started.
func (d *Dockerd) ContainerdPid() int {
	d.TB.Helper()
	pid := 0
	lab.Eventually(d.TB, lab.StartLimit, "dockerd has a containerd", func() error {
		children := lab.Children(d.Pid())
		for _, child := range children {
			comm, _ := os.ReadFile("/proc/" + child + "/comm")
			if strings.TrimSpace(string(comm)) == "containerd" {
				var err error
				pid, err = strconv.Atoi(child)
				return err
			}
		}
		return fmt.Errorf("dockerd's children are %q", children)
	})
	return pid
}

// StopProcess is Freeze that returns what continues the process.
func StopProcess(t testing.TB, pid int) (cont func()) {
	t.Helper()
	lab.Freeze(t, pid)
	return func() { lab.Thaw(t, pid) }
}
