//go:build e2e

package runtime

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// newCRIOProgram prepares a real CRI-O, whose program PLEGD_E2E_CRIO names; pinns lies beside it. conmon, runc and
// podman, which puts the pause image into its storage, are Debian's. It is used as a containerd is, and has no shims
// but a conmon for each container.
func newCRIOProgram(t testing.TB, options ContainerdOptions) *Containerd {
	t.Helper()
	lab.RequireRoot(t)
	lab.RequirePrograms(t, "runc", "conmon", "podman", "prlimit")
	program := os.Getenv(crioProgramEnv)
	if program == "" {
		lab.Unable(t, crioProgramEnv+" names no crio")
	}
	dir := lab.Dir(t)
	c := &Containerd{
		Socket:    filepath.Join(dir, "crio.sock"),
		Log:       filepath.Join(dir, "crio.log"),
		CNIConfig: filepath.Join(dir, "cni", "lab.conflist"),
		monitor:   "conmon",
	}
	c.setProcess(t, "crio")
	c.Env = append(c.Env, "CONTAINERS_REGISTRIES_CONF="+filepath.Join(dir, "registries.conf"))
	config := filepath.Join(dir, "config.toml")
	c.Argv = []string{program, "--config", config, "--config-dir", ""}
	c.limitFiles(options.OpenFiles)
	for _, sub := range []string{"root", "state", "cni", "log", "hooks"} {
		lab.Must(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	wrapper := filepath.Join(dir, "runc")
	pinns := filepath.Join(filepath.Dir(program), "pinns")
	settings := fmt.Sprintf(crioTOML, dir, c.Socket, PauseImage, lab.LookPath(t, "conmon"), pinns, wrapper, crioRunRoot)
	for path, text := range map[string]string{
		config:                                settings,
		filepath.Join(dir, "policy.json"):     `{"default":[{"type":"insecureAcceptAnything"}]}`,
		filepath.Join(dir, "registries.conf"): "unqualified-search-registries = []\nshort-name-mode = \"disabled\"\n",
		filepath.Join(dir, "cni", "loopback"): FakePlugin,
		wrapper:                               fmt.Sprintf(runcWrapper, lab.LookPath(t, "runc")),
	} {
		lab.Must(t, os.WriteFile(path, []byte(text), 0o755))
	}
	c.WriteCNIConfig()
	// podman, CRI-O and CNI write below /etc and /var/lib with every configuration.
	c.Namespace = lab.NewNamespace(t, lab.NamespaceConfig{
		Tmpfs: []string{filepath.Join(dir, "root"), filepath.Join(dir, "state"), "/var/lib"}, Overlay: []string{"/etc"},
	})
	c.importImage = func() { c.loadIntoStorage(dir) }
	c.importImage() // it has no other way to a pause image
	if !options.NotStarted {
		c.Start()
	}
	return c
}

// loadIntoStorage puts the pause image into CRI-O's storage.
func (c *Containerd) loadIntoStorage(dir string) {
	c.TB.Helper()
	log := filepath.Join(dir, "podman.log")
	_, end, err := c.Namespace.Launch(lab.NamespaceCommand{Env: c.Env, Log: log, Argv: []string{
		lab.LookPath(c.TB, "podman"), "--root", filepath.Join(dir, "root"), "--runroot", crioRunRoot, "--storage-driver", "overlay",
		"--cgroup-manager", "cgroupfs", "--events-backend", "file", "load", "--quiet", "--input", ImageTar(c.TB),
	}})
	if err != nil {
		c.TB.Fatalf("start podman: %v\n%s", err, lab.Tail(log, 20))
	}
	select {
	case <-end.Done:
	case <-time.After(time.Minute):
		c.TB.Fatalf("podman does not end\n%s", lab.Tail(log, 20))
	}
	if end.Status.ExitStatus() != 0 {
		c.TB.Fatalf("podman load: %s\n%s", lab.DescribeExit(end.Status), lab.Tail(log, 20))
	}
}

// crioRunRoot is in the namespace's own /run. podman takes 50 characters at most.
const crioRunRoot = "/run/lab-storage"

// crioTOML keeps everything of CRI-O's in the test's directory.
//
//go:embed testdata/crio.toml
var crioTOML string

// FakePlugin is a network plugin that makes no network. CRI-O asks it for its
// versions before it calls the network ready.
//
//go:embed testdata/cni-plugin
var FakePlugin string

// runcWrapper is runc without a negative oom_score_adj, which root without
// CAP_SYS_RESOURCE, as in many CI machines, may not set.
//
//go:embed testdata/runc-wrapper
var runcWrapper string

// isMonitorOf reports whether a command line is that of a pod's shim, or of the
// conmon of one of its containers, whose name holds the pod's.
func (c *Containerd) isMonitorOf(p *Pod, cmdline string) bool {
	program, _, _ := strings.Cut(cmdline, "\x00")
	if c.monitor == "conmon" {
		return filepath.Base(program) == "conmon" && strings.Contains(cmdline, "_"+p.Name+"_")
	}
	return strings.Contains(program, "containerd-shim") && strings.Contains(cmdline, "-id\x00"+p.ID+"\x00")
}
