//go:build e2e

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Podman runs containers of its own beside a runtime, in the same namespaces: the
// parent of their conmons is then an ancestor of the runtime, as on a node whose
// first process is the parent of both. None of them is the runtime's.
type Podman struct {
	t      testing.TB
	c      *Containerd
	global []string
	dir    string
}

// NewPodman prepares a podman with the pause image, in the namespaces of c, which
// has been started.
func NewPodman(t testing.TB, c *Containerd) *Podman {
	t.Helper()
	RequirePrograms(t, "podman", "conmon", "runc")
	p := &Podman{t: t, c: c, dir: Dir(t)}
	wrapper := filepath.Join(p.dir, "runc")
	must(t, os.WriteFile(wrapper, []byte(fmt.Sprintf(runcWrapper, LookPath(t, "runc"))), 0o755))
	p.global = []string{
		LookPath(t, "podman"), "--root", filepath.Join(p.dir, "root"), "--runroot", "/run/lab-podman", "--tmpdir", "/run/lab-podman-tmp",
		"--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file", "--runtime", wrapper,
	}
	p.command("load", "--quiet", "--input", ImageTar(t))
	return p
}

// Run starts a container and returns the pid of its conmon.
func (p *Podman) Run(name string) (conmon int) {
	p.t.Helper()
	file := filepath.Join(p.dir, name+".pid")
	p.command("run", "--detach", "--name", name, "--network", "none", "--cgroup-parent", "/"+p.c.Cgroup, "--conmon-pidfile", file, PauseImage)
	b, err := os.ReadFile(file)
	must(p.t, err)
	inner, err := strconv.Atoi(strings.TrimSpace(string(b)))
	must(p.t, err)
	conmon, err = outerPid(p.c.ns.cmd.Process.Pid, inner)
	must(p.t, err)
	return conmon
}

// Remove removes a container, one that runs too.
func (p *Podman) Remove(name string) {
	p.t.Helper()
	p.command("rm", "--force", "--time", "0", name)
}

func (p *Podman) command(args ...string) {
	p.t.Helper()
	log := filepath.Join(p.dir, "podman.log")
	_, end, err := p.c.ns.launch(nsCommand{Argv: append(p.global[:len(p.global):len(p.global)], args...), Env: os.Environ(), Log: log})
	must(p.t, err)
	select {
	case <-end.done:
	case <-time.After(time.Minute):
		p.t.Fatalf("podman %s does not end\n%s", args[0], Tail(log, 20))
	}
	if end.status.ExitStatus() != 0 {
		p.t.Fatalf("podman %s: %s\n%s", args[0], describe(end.status), Tail(log, 20))
	}
}
