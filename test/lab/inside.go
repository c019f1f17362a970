//go:build e2e

package lab

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// DefaultSocket is where containerd listens on a node. ContainerdOptions.AtDefault
// makes it listen there, in namespaces of its own.
const DefaultSocket = "/run/containerd/containerd.sock"

// Inside is a process in a containerd's mount and pid namespaces, where it sees
// the containerd's socket and processes, and no others of the machine.
type Inside struct {
	Pid int
	// Log is the file that holds its output.
	Log string

	t   testing.TB
	end *exit
}

// StartInside starts plegd with these arguments in the namespaces.
func (c *Containerd) StartInside(t testing.TB, args ...string) *Inside {
	t.Helper()
	log := filepath.Join(t.TempDir(), "output")
	pid, end, err := c.ns.start(nsCommand{Argv: append([]string{Binary(t)}, args...), Env: cleanEnv(), Log: log})
	if ended := end != nil && isClosed(end.done); err != nil && !ended { // a short command may have ended already
		t.Fatalf("start plegd in the namespaces: %v\n%s", err, Tail(log, 20))
	}
	p := &Inside{Pid: pid, Log: log, t: t, end: end}
	t.Cleanup(func() {
		if !isClosed(end.done) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return p
}

// Signal sends a signal.
func (p *Inside) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := syscall.Kill(p.Pid, s); err != nil {
		p.t.Fatal(err)
	}
}

// Wait waits until the process has ended and returns its exit code and its
// output.
func (p *Inside) Wait(limit time.Duration) (code int, output string) {
	p.t.Helper()
	select {
	case <-p.end.done:
	case <-time.After(limit):
		p.t.Fatalf("plegd has not ended within %s\n%s", limit, Tail(p.Log, 20))
	}
	b, err := os.ReadFile(p.Log)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.end.status.ExitStatus(), string(b)
}

// FreeAddress returns a loopback address that nothing listens on.
func FreeAddress(t testing.TB) string { return freeAddress(t) }

// Burn keeps n threads busy until the test ends: a load of n.
func Burn(t testing.TB, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var burning []*exec.Cmd
	for range n {
		cmd := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			cancel()
			t.Fatal(err)
		}
		burning = append(burning, cmd)
	}
	t.Cleanup(func() {
		cancel()
		for _, cmd := range burning {
			_ = cmd.Wait()
		}
	})
}

// Restarts is how often a test restarts something: RESTARTS, or few.
func Restarts(t testing.TB, few int) int {
	t.Helper()
	text := os.Getenv("RESTARTS")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("RESTARTS=%q: want a number from 1 on", text)
	}
	return n
}
