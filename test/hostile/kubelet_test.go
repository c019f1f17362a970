//go:build e2e

package hostile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/lab"
)

// nobody is a user without any right.
const nobody = 65534

// TestImpostorKubelet starts processes that are called kubelet and are not the node's. plegd
// says so, watches no socket that they name and shows no file that they name.
func TestImpostorKubelet(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("another user's process needs root")
	}
	const secret = "s3cret-of-root"
	for name, argument := range map[string]func(dir string) string{
		"its own socket":       func(dir string) string { return "--container-runtime-endpoint=" + dir + "/evil.sock" },
		"a FIFO":               func(dir string) string { return "--config=" + dir + "/fifo" },
		"a secret of root":     func(dir string) string { return "--config=" + dir + "/secret" },
		"a secret below /proc": func(dir string) string { return "--config=/proc/1/root" + dir + "/secret" },
		"a whole node":         func(string) string { return "--config-dir=/" },
	} {
		t.Run(name, func(t *testing.T) {
			countAttack(t, identity)
			dir := lab.Dir(t)
			serveAt(t, dir+"/evil.sock", fakeruntime.Options{}, 1)
			fifo(t, dir+"/fifo")
			lab.Must(t, os.WriteFile(dir+"/secret", []byte(secret+"\n"), 0o600))
			impostor(t, argument(dir))
			rt, socket := serve(t, fakeruntime.Options{}, 5)
			node := []string{"--path.procfs=/proc", "--path.sysfs=/sys"}
			p := start(t, socket, lab.PlegdOptions{Flags: node})
			p.worksOn(rt)
			p.awaitMetric(`pleg_evidence_up{source="kubelet_process"}`, "0")
			searching := start(t, "", lab.PlegdOptions{Flags: append(node, "--runtime-endpoint=")})
			searching.awaitMetric(`pleg_evidence_up{source="kubelet_process"}`, "0")
			for _, log := range []string{p.log(), searching.log()} {
				if !strings.Contains(log, "it runs as uid 65534") || strings.Contains(log, "evil.sock") || strings.Contains(log, secret) {
					t.Errorf("the log:\n%s", log)
				}
			}
		})
	}
}

// TestImpostorShims: beside a call that hangs, a stopped shim is the runtime's only if it is of the
// runtime's user, and so is a helper.
func TestImpostorShims(t *testing.T) {
	lab.RequireRoot(t)
	t.Parallel()
	for name, tt := range map[string]struct {
		program string
		uid     uint32
		shims   int
	}{
		"the runtime's":                   {"containerd-shim-runc-v2", 0, 1},
		"another user's shim":             {"containerd-shim-runc-v2", nobody, 0},
		"another user's conmon":           {"conmon", nobody, 0},
		"another user's helper":           {"runc", nobody, 0},
		"another user's set-user-ID shim": {"containerd-shim", nobody, 0},
	} {
		t.Run(name, func(t *testing.T) {
			countAttack(t, identity)
			p, rt := startDenied(t, nil)
			pid := orphan(t, tt.program, tt.uid, "-namespace", "k8s.io", "-id", "0123abcd", "-address", rt.Socket)
			rt.Fail("ListContainers=hang")
			began := time.Now()
			s := p.await("five seconds of samples beside the hang", func(s lab.Status) bool {
				c := s.Evidence.Children
				return c != nil && c.At.After(began.Add(5*time.Second))
			})
			stuck := 0
			for _, c := range append(s.Evidence.Children.Stuck, s.Evidence.Children.Old...) {
				if c.PID == pid {
					stuck++
				}
			}
			check.Equal(t, stuck, tt.shims, "stuck shims: %+v", s.Evidence.Children)
			if tt.shims == 0 {
				checkCauses(t, s, "RuntimeListStall")
			}
		})
	}
}

// orphan starts a stopped process of a user under a name, whose parent has ended.
func orphan(t *testing.T, name string, uid uint32, args ...string) int {
	t.Helper()
	program := namedProgram(t, name)
	cmd := exec.Command("sh", append([]string{"-c", `"$0" "$@" <&- >&- 2>&- & echo $!`, program}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.Output()
	lab.Must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	lab.Must(t, err)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	lab.Eventually(t, patience, "the program has begun", func() error {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err == nil && !strings.HasPrefix(name, strings.TrimSpace(string(comm))) {
			err = fmt.Errorf("it is %s", comm)
		}
		return err
	})
	lab.Must(t, syscall.Kill(pid, syscall.SIGSTOP))
	return pid
}

// namedProgram makes a program of a name that waits for its end, and that every user may run.
func namedProgram(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	lab.Must(t, os.WriteFile(program, []byte("#!/bin/sh\nwhile :; do read line || sleep 1000; done\n"), 0o755))
	for parent := filepath.Dir(program); parent != "/"; parent = filepath.Dir(parent) {
		_ = os.Chmod(parent, 0o755) // so that another user may run it
	}
	return program
}

// impostor starts a process of another user that is called kubelet.
func impostor(t *testing.T, argument string) {
	t.Helper()
	program := namedProgram(t, "kubelet")
	cmd := exec.Command(program, argument)
	_, err := cmd.StdinPipe() // never written to
	lab.Must(t, err)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
	lab.StartCommand(t, cmd)
}
