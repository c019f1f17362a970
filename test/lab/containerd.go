//go:build e2e

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Containerd is a private containerd: the machine's own program, or one of
// another version, in mount and pid namespaces of the lab's. It can be frozen, killed and started again; its
// pods live on, as on a node.
type Containerd struct {
	// Socket is the path of its CRI socket.
	Socket string
	// Log is the path of its log, which goes on across restarts.
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
}

// ContainerdOptions vary a containerd.
type ContainerdOptions struct {
	// Version is another one than the machine's own: Containerd17, Containerd2.
	Version string
	// OpenFiles is its RLIMIT_NOFILE, soft and hard; 0: inherited.
	OpenFiles int
	// NoCNI leaves it without a network configuration.
	NoCNI bool
	// NotStarted leaves it to the test to call Start.
	NotStarted bool
}

// startLimit is how long a containerd may take until it answers.
const startLimit = 30 * time.Second

// NewContainerd starts a containerd that has the pause image and no pods.
func NewContainerd(t testing.TB, options ContainerdOptions) *Containerd {
	t.Helper()
	if endpoint := os.Getenv(endpointEnv); endpoint != "" {
		t.Skipf("SKIPPED: the runtime at %s is not the tests' own to break", endpoint)
	}
	RequireRoot(t)
	RequirePrograms(t, "runc", "prlimit")
	programs := containerdPrograms(t, options.Version)
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
	if n := strconv.Itoa(options.OpenFiles); options.OpenFiles > 0 {
		// prlimit replaces itself by the program: the pid is containerd's own.
		c.argv = append([]string{mustLookPath(t, "prlimit"), "--nofile=" + n + ":" + n}, c.argv...)
	}
	writeContainerdConfig(t, options.Version, dir, config, c.Socket)
	if !options.NoCNI {
		c.WriteCNIConfig()
	}

	// First the cgroups' removal is put off, then the namespace: what is put off
	// last is done first.
	t.Cleanup(func() { removeCgroup(c.Cgroup) })
	c.ns = newNamespace(t, nsConfig{Tmpfs: []string{filepath.Join(dir, "root"), filepath.Join(dir, "state")}})
	if !options.NotStarted {
		c.Start()
	}
	return c
}

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
		return versionAnswers(c.Socket)
	})
	if first {
		c.ImportImage()
	}
}

// ImportImage imports the image that pods run, again where it is there.
func (c *Containerd) ImportImage() {
	c.t.Helper()
	out, err := exec.Command(c.ctr, "--address", c.Socket, "--namespace", "k8s.io", "images", "import", imageTar(c.t)).CombinedOutput()
	if err != nil {
		c.t.Fatalf("import the pause image: %v\n%s", err, out)
	}
}

// Launch starts containerd and does not wait until it answers.
func (c *Containerd) Launch() {
	c.t.Helper()
	if c.end != nil && !isClosed(c.end.done) {
		c.t.Fatal("lab: containerd runs already")
	}
	var err error
	c.pid, c.end, err = c.ns.start(nsCommand{Argv: c.argv, Env: c.env, Log: c.Log})
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
	c.signal(syscall.SIGSTOP)
	c.stopped = true
	Eventually(c.t, 5*time.Second, "containerd is stopped", func() error {
		if state := processState(c.pid); state != "T" {
			return fmt.Errorf("process %d is in state %q", c.pid, state)
		}
		return nil
	})
}

// Thaw lets a frozen containerd go on.
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

// versionAnswers asks a socket for its version on a connection of its own.
func versionAnswers(socket string) error {
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

func mustLookPath(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Unable(t, err.Error())
	}
	return path
}
