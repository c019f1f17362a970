//go:build e2e

package hostile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/plegd/plegd/internal/fakeruntime"
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

// impostor starts a process of another user that is called kubelet.
func impostor(t *testing.T, argument string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kubelet")
	lab.Must(t, os.WriteFile(program, []byte("#!/bin/sh\nread line\n"), 0o755))
	for parent := filepath.Dir(program); parent != "/"; parent = filepath.Dir(parent) {
		_ = os.Chmod(parent, 0o755) // so that another user may run it
	}
	cmd := exec.Command(program, argument)
	_, err := cmd.StdinPipe() // never written to
	lab.Must(t, err)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
	lab.StartCommand(t, cmd)
}
