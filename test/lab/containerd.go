//go:build e2e

package lab

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Containerd is a private containerd: the machine's own program, or one of
// another version, in mount and pid namespaces of the lab's. Where the environment
// asks for CRI-O (PLEGD_E2E_RUNTIME) it is a private CRI-O, where it asks for
// cri-dockerd a cri-dockerd with a dockerd of its own. It can be frozen, killed and started again; its
// pods live on, as on a node.
type Containerd struct {
	// Socket is the path of its CRI socket.
	Socket string
	// Log is the path of its log, which continues across restarts.
	Log string
	// CNIConfig is the path of its network configuration: without the file it
	// says that its network is not ready.
	CNIConfig string
	// Cgroup is the parent of its pods' cgroups.
	Cgroup string

	t       testing.TB
	ns      *namespace
	argv    []string
	env     []string
	ctr     string
	pid     int
	end     *exit
	stopped bool
	// importImage imports the pause image; nil: by ctr.
	importImage func()
	// monitor is the program that keeps a pod's containers: "" for shims.
	monitor string
	// docker is the Docker daemon behind it, nil where it is no cri-dockerd.
	docker *Dockerd
	// logPipe is a named pipe that it logs to, logReader the process that reads it.
	logPipe   string
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

// startLimit is how long a containerd may take until it answers.
const startLimit = 30 * time.Second

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
	RequireRoot(t)
	RequirePrograms(t, "runc", "prlimit")
	version := containerdVersion(t, options.Version)
	programs := containerdPrograms(t, version)
	dir := Dir(t)
	c := &Containerd{
		Socket:    filepath.Join(dir, "containerd.sock"),
		Log:       filepath.Join(dir, "containerd.log"),
		CNIConfig: filepath.Join(dir, "cni", "lab.conflist"),
		Cgroup:    newCgroupName(),
		t:         t,
		env:       os.Environ(),
		ctr:       programs.ctr,
	}
	if programs.dir != "" {
		// Where containerd finds its shim. Of two values the first would count.
		c.env = append([]string{"PATH=" + programs.dir + string(os.PathListSeparator) + os.Getenv("PATH")}, c.env...)
	}
	t.Cleanup(func() { KeepLog(t, c.Log, "containerd") })
	config := filepath.Join(dir, "config.toml")
	c.argv = []string{programs.containerd, "--config", config}
	if options.RuncHangsOn != "" {
		bin := filepath.Join(dir, "bin")
		must(t, os.Mkdir(bin, 0o755))
		waits := "sleep 0.2"
		if options.RuncHangsIn != "" {
			program, err := os.ReadFile(LookPath(t, "sleep"))
			must(t, err)
			waits = filepath.Join(bin, options.RuncHangsIn)
			must(t, os.WriteFile(waits, program, 0o755))
			waits = "'" + waits + "' 120"
		}
		text := fmt.Sprintf(hangingRunc, options.RuncHangsOn, c.RuncFlag(), waits, LookPath(t, "runc"))
		must(t, os.WriteFile(filepath.Join(bin, "runc"), []byte(text), 0o755))
		c.env = append([]string{"PATH=" + strings.Join([]string{bin, programs.dir, os.Getenv("PATH")}, string(os.PathListSeparator))}, c.env...)
	}
	if n := strconv.Itoa(options.OpenFiles); options.OpenFiles > 0 {
		// prlimit replaces itself by the program: the pid is containerd's own.
		c.argv = append([]string{LookPath(t, "prlimit"), "--nofile=" + n + ":" + n}, c.argv...)
	}
	listen := c.Socket
	if options.AtDefault {
		listen = DefaultSocket
	}
	writeContainerdConfig(t, version, dir, config, listen)
	c.WriteCNIConfig()

	// Register the cgroups' removal first, then the namespace's: cleanups run in reverse
	// order.
	t.Cleanup(func() { removeCgroup(c.Cgroup) })
	namespaces := nsConfig{Tmpfs: []string{filepath.Join(dir, "root"), filepath.Join(dir, "state")}}
	if options.Node {
		namespaces = nodeNamespaces(namespaces.Tmpfs...)
	}
	namespaces.Empty = []string{"/etc/crictl.yaml"}
	if !options.Node {
		namespaces.Empty = append(namespaces.Empty, "/var/lib/kubelet/config.yaml")
	}
	c.ns = newNamespace(t, namespaces)
	if options.AtDefault {
		c.Socket = fmt.Sprintf("/proc/%d/root%s", c.ns.cmd.Process.Pid, DefaultSocket)
	}
	if options.LogReader {
		c.readLog()
	}
	if !options.NotStarted {
		c.Start()
	}
	return c
}

// LogReader is the process that reads the runtime's log, as journald does.
func (c *Containerd) LogReader() int { return c.logReader.Process.Pid }

// readLog has the runtime log to a pipe whose reader is a process of its own.
func (c *Containerd) readLog() {
	c.t.Helper()
	c.logPipe = c.Log + ".pipe"
	must(c.t, syscall.Mkfifo(c.logPipe, 0o600))
	c.logReader = exec.Command("sh", "-c", `exec cat <>"$0" >"$1"`, c.logPipe, c.Log)
	c.logReader.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(c.t, c.logReader.Start())
	c.t.Cleanup(func() {
		_ = c.logReader.Process.Kill()
		_ = c.logReader.Wait()
	})
}

// hangingRunc is a runc that hangs on one of its commands while a file is there.
const hangingRunc = `#!/bin/sh
for a in "$@"; do
  while [ "$a" = %s ] && [ -e '%s' ]; do %s; done
done
exec %s "$@"
`

// RuncFlag is the file whose presence makes runc hang.
func (c *Containerd) RuncFlag() string { return filepath.Join(filepath.Dir(c.Socket), "runc-hangs") }

// WriteCNIConfig gives containerd a network, so that it says NetworkReady. The
// pods are in the host's network: no plugin is ever called.
func (c *Containerd) WriteCNIConfig() {
	c.t.Helper()
	conflist := `{"cniVersion": "0.3.1", "name": "lab", "plugins": [{"type": "loopback"}]}`
	// Renamed into its place: a half-written one would be taken for broken.
	draft := c.CNIConfig + ".draft"
	if err := os.WriteFile(draft, []byte(conflist), 0o644); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(draft, c.CNIConfig); err != nil {
		c.t.Fatal(err)
	}
}

// Start starts containerd, after its death or for the first time, and waits
// until it answers.
func (c *Containerd) Start() {
	c.t.Helper()
	first := c.end == nil
	c.Launch()
	Eventually(c.t, startLimit, "containerd answers", func() error {
		if isClosed(c.end.done) {
			c.t.Fatalf("containerd ended: %s\n%s", describe(c.end.status), Tail(c.Log, 20))
		}
		return VersionAnswers(c.Socket)
	})
	if first {
		c.ImportImage()
	}
}

// ImportImage imports the image that pods run, again where it is there.
func (c *Containerd) ImportImage() {
	c.t.Helper()
	if c.importImage != nil {
		c.importImage()
		return
	}
	c.ImportTar(ImageTar(c.t))
	// containerd 2.4 takes a moment until its CRI part knows the image.
	Eventually(c.t, startLimit, "the runtime knows the pause image", func() error { return hasImage(c.Socket, PauseImage) })
}

// ImportTar imports a tar of images.
func (c *Containerd) ImportTar(path string) {
	c.t.Helper()
	c.images("import", path)
}

// Images returns the names of its images.
func (c *Containerd) Images() []string {
	c.t.Helper()
	return strings.Fields(c.images("list", "--quiet"))
}

func (c *Containerd) images(args ...string) string {
	c.t.Helper()
	argv := append([]string{"--address", c.Socket, "--namespace", "k8s.io", "images"}, args...)
	out, err := exec.Command(c.ctr, argv...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("ctr images %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Launch starts containerd and does not wait until it answers.
func (c *Containerd) Launch() {
	c.t.Helper()
	if c.end != nil && !isClosed(c.end.done) {
		c.t.Fatal("lab: containerd runs already")
	}
	var err error
	c.pid, c.end, err = c.ns.start(nsCommand{Argv: c.argv, Env: c.env, Log: cmp.Or(c.logPipe, c.Log)})
	if err != nil {
		c.t.Fatalf("start containerd: %v\n%s", err, Tail(c.Log, 20))
	}
	c.stopped = false
	if err := joinCgroup(filepath.Join(c.Cgroup, "service"), c.pid); err != nil {
		c.t.Fatalf("give containerd a cgroup of its own: %v", err)
	}
}

// Pid is containerd's process id.
func (c *Containerd) Pid() int { return c.pid }

// Kill ends containerd by SIGKILL: its socket's file stays behind.
func (c *Containerd) Kill() {
	c.t.Helper()
	c.signal(syscall.SIGKILL)
	c.awaitEnd()
}

// Terminate ends containerd by SIGTERM: it removes its socket.
func (c *Containerd) Terminate() {
	c.t.Helper()
	c.signal(syscall.SIGTERM)
	c.awaitEnd()
}

// Freeze stops every thread of containerd, and returns when they have stopped.
func (c *Containerd) Freeze() {
	c.t.Helper()
	Freeze(c.t, c.pid)
	c.stopped = true
}

// Thaw resumes a frozen containerd.
func (c *Containerd) Thaw() {
	c.t.Helper()
	c.signal(syscall.SIGCONT)
	c.stopped = false
}

func (c *Containerd) signal(s syscall.Signal) {
	c.t.Helper()
	if c.end == nil || isClosed(c.end.done) {
		c.t.Fatalf("lab: no containerd to send %s to", s)
	}
	if err := syscall.Kill(c.pid, s); err != nil {
		c.t.Fatalf("lab: send %s to containerd: %v", s, err)
	}
}

func (c *Containerd) awaitEnd() {
	c.t.Helper()
	select {
	case <-c.end.done:
	case <-time.After(20 * time.Second):
		c.t.Fatalf("containerd does not end\n%s", Tail(c.Log, 20))
	}
}

// VersionAnswers asks a socket for its version on a connection of its own.
func VersionAnswers(socket string) error {
	r, err := dialCRI(socket)
	if err != nil {
		return err
	}
	defer closeQuietly(r.conn)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = r.version(ctx)
	return err
}

// LookPath returns the path of a program that the test needs.
func LookPath(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Unable(t, err.Error())
	}
	return path
}
