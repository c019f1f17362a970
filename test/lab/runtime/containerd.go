//go:build e2e

package runtime

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// Containerd is a private containerd: the machine's own program, or one of another version, in mount and pid
// namespaces of the lab's. Where the environment asks for CRI-O (PLEGD_E2E_RUNTIME) it is a private CRI-O, where it
// asks for cri-dockerd a cri-dockerd with a dockerd of its own. It can be frozen, killed and started again; its pods
// live on, as on a node.
type Containerd struct {
	// Socket is the path of its CRI socket.
	Socket string
	// Log is the path of its log, which continues across restarts.
	Log string
	// CNIConfig is the path of its network configuration: without the file it says that its network is not ready.
	CNIConfig string
	// Cgroup is the parent of its pods' cgroups.
	Cgroup string

	lab.Process
	ctr string
	// importImage imports the pause image; nil: by ctr.
	importImage func()
	// monitor is the program that keeps a pod's containers: "" for shims.
	monitor string
	// docker is the Docker daemon behind it, nil where it is no cri-dockerd.
	docker *Dockerd
	// logReader is the process that reads a named pipe that it logs to.
	logReader *exec.Cmd
}

// ContainerdOptions vary a containerd.
type ContainerdOptions struct {
	// Version is a certain one: Containerd16, Containerd17, Containerd21,
	// Containerd2. Empty: that of PLEGD_E2E_CONTAINERD, else the machine's own.
	Version string
	// RuncHangsOn makes its runc hang, while the file that RuncFlag names is there,
	// when it is called for this command; "" for a runc that does not.
	RuncHangsOn string
	// RuncHangsIn is the name of the program that then hangs; "" for runc itself.
	RuncHangsIn string
	// LogReader puts a pipe between its log and the file: see Containerd.LogReader.
	LogReader bool
	// OpenFiles is its RLIMIT_NOFILE, soft and hard; 0: inherited.
	OpenFiles int
	// AtDefault makes it listen at DefaultSocket, in its namespaces.
	AtDefault bool
	// NotStarted leaves it to the test to call Start.
	NotStarted bool
	// Node gives it a whole node's namespaces, for a kubelet: see Containerd.Node.
	Node bool
}

// DefaultSocket is where containerd listens on a node.
const DefaultSocket = "/run/containerd/containerd.sock"

// NewContainerd starts a containerd that has the pause image and no pods.
func NewContainerd(t testing.TB, options ContainerdOptions) *Containerd {
	t.Helper()
	if options.Version == "" {
		switch os.Getenv(runtimeEnv) {
		case runtimeCRIO:
			return newCRIOProgram(t, options)
		case runtimeDocker:
			return newCRIDockerd(t, options)
		}
	}
	lab.RequireRoot(t)
	lab.RequirePrograms(t, "runc", "prlimit")
	version := containerdVersion(t, options.Version)
	programs := containerdPrograms(t, version)
	dir := lab.Dir(t)
	c := &Containerd{
		Socket:    filepath.Join(dir, "containerd.sock"),
		Log:       filepath.Join(dir, "containerd.log"),
		CNIConfig: filepath.Join(dir, "cni", "lab.conflist"),
		ctr:       programs.ctr,
	}
	c.setProcess(t, "containerd")
	if programs.dir != "" {
		// Where containerd finds its shim. Of two values the first would count.
		c.Env = append([]string{"PATH=" + programs.dir + string(os.PathListSeparator) + os.Getenv("PATH")}, c.Env...)
	}
	config := filepath.Join(dir, "config.toml")
	c.Argv = []string{programs.containerd, "--config", config}
	if options.RuncHangsOn != "" {
		bin := filepath.Join(dir, "bin")
		lab.Must(t, os.Mkdir(bin, 0o755))
		waits := "sleep 0.2"
		if options.RuncHangsIn != "" {
			program, err := os.ReadFile(lab.LookPath(t, "sleep"))
			lab.Must(t, err)
			waits = filepath.Join(bin, options.RuncHangsIn)
			lab.Must(t, os.WriteFile(waits, program, 0o755))
			waits = "'" + waits + "' 120"
		}
		text := fmt.Sprintf(hangingRunc, options.RuncHangsOn, c.RuncFlag(), waits, lab.LookPath(t, "runc"))
		lab.Must(t, os.WriteFile(filepath.Join(bin, "runc"), []byte(text), 0o755))
		c.Env = append([]string{"PATH=" + strings.Join([]string{bin, programs.dir, os.Getenv("PATH")}, string(os.PathListSeparator))}, c.Env...)
	}
	c.limitFiles(options.OpenFiles)
	listen := c.Socket
	if options.AtDefault {
		listen = DefaultSocket
	}
	writeContainerdConfig(t, version, dir, config, listen)
	c.WriteCNIConfig()

	namespaces := lab.NamespaceConfig{Tmpfs: []string{filepath.Join(dir, "root"), filepath.Join(dir, "state")}}
	if options.Node {
		namespaces = lab.NodeNamespaces(namespaces.Tmpfs...)
	}
	namespaces.Empty = []string{"/etc/crictl.yaml"}
	if !options.Node {
		namespaces.Empty = append(namespaces.Empty, "/var/lib/kubelet/config.yaml")
	}
	c.Namespace = lab.NewNamespace(t, namespaces)
	if options.AtDefault {
		c.Socket = fmt.Sprintf("/proc/%d/root%s", c.Namespace.Pid(), DefaultSocket)
	}
	if options.LogReader {
		c.readLog()
	}
	if !options.NotStarted {
		c.Start()
	}
	return c
}

// setProcess completes a new runtime. The removal of its cgroups is registered before the
// namespace's: cleanups run in reverse order.
func (c *Containerd) setProcess(t testing.TB, name string) {
	c.Cgroup = lab.NewCgroupName()
	c.Process = lab.Process{TB: t, Name: name, Env: os.Environ(), Log: c.Log, Cgroup: filepath.Join(c.Cgroup, "service")}
	t.Cleanup(func() { lab.KeepLog(t, c.Log, name) })
	t.Cleanup(func() { lab.RemoveCgroup(c.Cgroup) })
}

// limitFiles has the program started with so many open files. prlimit replaces itself by
// the program: the pid is the program's own.
func (c *Containerd) limitFiles(n int) {
	if n > 0 {
		c.Argv = append([]string{lab.LookPath(c.TB, "prlimit"), fmt.Sprintf("--nofile=%[1]d:%[1]d", n)}, c.Argv...)
	}
}

// LogReader is the process that reads the runtime's log, as journald does.
func (c *Containerd) LogReader() int { return c.logReader.Process.Pid }

// readLog has the runtime log to a pipe whose reader is a process of its own.
func (c *Containerd) readLog() {
	c.TB.Helper()
	c.Pipe = c.Log + ".pipe"
	lab.Must(c.TB, syscall.Mkfifo(c.Pipe, 0o600))
	c.logReader = exec.Command("sh", "-c", `exec cat <>"$0" >"$1"`, c.Pipe, c.Log)
	lab.StartCommand(c.TB, c.logReader)
}

// hangingRunc is a runc that hangs on one of its commands while a file is there.
//
//go:embed testdata/hanging-runc
var hangingRunc string

// RuncFlag is the file whose presence makes runc hang.
func (c *Containerd) RuncFlag() string { return filepath.Join(filepath.Dir(c.Socket), "runc-hangs") }

// WriteCNIConfig gives containerd a network, so that it says NetworkReady. The
// pods are in the host's network: no plugin is ever called.
func (c *Containerd) WriteCNIConfig() {
	c.TB.Helper()
	conflist := `{"cniVersion": "0.3.1", "name": "lab", "plugins": [{"type": "loopback"}]}`
	// Renamed into its place: a half-written one would be taken for broken.
	draft := c.CNIConfig + ".draft"
	lab.Must(c.TB, os.WriteFile(draft, []byte(conflist), 0o644))
	lab.Must(c.TB, os.Rename(draft, c.CNIConfig))
}

// Start starts containerd, after its death or for the first time, and waits until it answers.
func (c *Containerd) Start() {
	c.TB.Helper()
	first := c.End == nil
	c.Launch()
	c.AwaitAnswer()
	if first {
		c.ImportImage()
	}
}

// ImportImage imports the image that pods run, again where it is there.
func (c *Containerd) ImportImage() {
	c.TB.Helper()
	if c.importImage != nil {
		c.importImage()
		return
	}
	c.ImportTar(ImageTar(c.TB))
	// containerd 2.4 takes a moment until its CRI part knows the image.
	lab.Eventually(c.TB, lab.StartLimit, "the runtime knows the pause image", func() error { return hasImage(c.Socket, PauseImage) })
}

// ImportTar imports a tar of images.
func (c *Containerd) ImportTar(path string) {
	c.TB.Helper()
	c.images("import", path)
}

// RemoveImage removes the image that pods run.
func (c *Containerd) RemoveImage() { c.images("rm", PauseImage) }

// Images returns the names of its images.
func (c *Containerd) Images() []string {
	c.TB.Helper()
	return strings.Fields(c.images("list", "--quiet"))
}

func (c *Containerd) images(args ...string) string {
	c.TB.Helper()
	argv := append([]string{"--address", c.Socket, "--namespace", "k8s.io", "images"}, args...)
	out, err := exec.Command(c.ctr, argv...).CombinedOutput()
	if err != nil {
		c.TB.Fatalf("ctr images %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// AwaitAnswer waits until containerd answers, after Launch.
func (c *Containerd) AwaitAnswer() {
	c.TB.Helper()
	c.Await(func() error { return VersionAnswers(c.Socket) })
}

// Terminate ends containerd by SIGTERM: it removes its socket. By Kill it stays behind.
func (c *Containerd) Terminate() {
	c.TB.Helper()
	c.Finish(syscall.SIGTERM, lab.EndLimit)
}

// ask makes a call to a socket on a connection of its own.
func ask(socket string, limit time.Duration, call func(context.Context, *CRI) error) error {
	r, err := dialCRI(socket)
	if err != nil {
		return err
	}
	defer lab.Close(r.conn)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return call(ctx, r)
}

// VersionAnswers asks a socket for its version.
func VersionAnswers(socket string) error {
	return ask(socket, time.Second, func(ctx context.Context, r *CRI) error { _, err := r.version(ctx); return err })
}

// Node returns the namespaces of a containerd, which are a whole node with ContainerdOptions.Node.
func (c *Containerd) Node() *lab.Node { return lab.NodeOf(c.TB, c.Namespace) }
