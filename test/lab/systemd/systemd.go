//go:build e2e

package systemd

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// Systemd is a systemd of the lab's: the machine's own program, booted as the first process of namespaces and cgroups
// of its own, on an overlay of the machine's root file system. A unit behaves there as on a node; nothing that it
// writes outlives the test.
type Systemd struct {
	t   testing.TB
	pid int
}

// File is a file to put into systemd's file system before it boots.
type File struct {
	// Path is the destination, From the file to copy; or Text is the content.
	Path, From, Text string
	Mode             os.FileMode
}

// Boot boots a systemd with these files, and waits until it is up.
func Boot(t testing.TB, files ...File) *Systemd {
	t.Helper()
	lab.RequireRoot(t)
	lab.RequirePrograms(t, systemdPath, "nsenter", "systemctl", "journalctl")
	dir := lab.Dir(t)
	group := lab.NewCgroupName()
	t.Cleanup(func() { lab.RemoveCgroup(group) })
	makeSystemdCgroups(t, group)

	cmd := lab.Again(t, systemdInitEnv, systemdConfig{Dir: dir, Files: files})
	// The cgroup namespace is made by the process itself, once it has been moved
	// to where that namespace's root is to be.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	stdin, err := cmd.StdinPipe()
	lab.Must(t, err)
	// Its death is that of everything in its namespaces: no power-off to wait for.
	done, _ := lab.StartCommand(t, cmd)
	s := &Systemd{t: t, pid: cmd.Process.Pid}
	t.Cleanup(func() {
		if t.Failed() {
			if out, err := s.TryRun("journalctl", "--boot", "--no-pager", "--lines=60", "--output=short-precise"); err == nil {
				t.Logf("the end of systemd's journal:\n%s", out)
			}
		}
	})
	for _, hierarchy := range lab.CgroupHierarchies() {
		procs := filepath.Join(hierarchy, group, "cgroup.procs")
		lab.Must(t, os.WriteFile(procs, []byte(strconv.Itoa(s.pid)), 0o644))
	}
	lab.Must(t, stdin.Close()) // the process continues at the end of its input
	lab.Eventually(t, 30*time.Second, "systemd is up", func() error {
		if lab.IsClosed(done) {
			t.Fatalf("systemd ended: %s\n%s", cmd.ProcessState, output.String())
		}
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", s.pid))
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(comm)) != "systemd" {
			return fmt.Errorf("the process is %q still", comm)
		}
		// Use the state: the exit code is 0 for one of them only.
		out, _ := s.TryRun("systemctl", "is-system-running")
		switch state := strings.TrimSpace(out); state {
		case "running", "degraded": // degraded: some unit of the machine's own does not run here
			return nil
		default:
			return fmt.Errorf("it is %q", state)
		}
	})
	return s
}

// Run runs a program in systemd's namespaces and returns its output and standard error.
func (s *Systemd) Run(argv ...string) string {
	s.t.Helper()
	out, err := s.TryRun(argv...)
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return out
}

// TryRun is Run for a program that may fail.
func (s *Systemd) TryRun(argv ...string) (string, error) {
	args := append([]string{"--target", strconv.Itoa(s.pid), "--all", "--"}, argv...)
	out, err := exec.Command("nsenter", args...).CombinedOutput()
	return string(out), err
}

// Property returns a property of a unit.
func (s *Systemd) Property(unit, property string) string {
	s.t.Helper()
	return strings.TrimSpace(s.Run("systemctl", "show", "--value", "--property="+property, unit))
}

// makeSystemdCgroups makes the directories that will be the roots of systemd's hierarchies.
func makeSystemdCgroups(t testing.TB, group string) {
	t.Helper()
	for _, hierarchy := range lab.CgroupHierarchies() {
		dir := filepath.Join(hierarchy, group)
		lab.Must(t, os.Mkdir(dir, 0o755))
		// In v1 a new cpuset has no CPU and no memory, and takes no process.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if b, err := os.ReadFile(filepath.Join(hierarchy, file)); err == nil {
				lab.Must(t, os.WriteFile(filepath.Join(dir, file), b, 0o644))
			}
		}
	}
}
