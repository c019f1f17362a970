//go:build e2e

package chain

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	walk "github.com/plegd/plegd/internal/chain"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/waiting"
)

// TestMain runs the tests, or is one of the processes that they start.
func TestMain(m *testing.M) {
	if os.Getenv(waiting.ModeEnv) == walkMode {
		os.Exit(walkMain(os.Args[1]))
	}
	waiting.Main()
	os.Exit(m.Run())
}

// walkMode walks from a process and prints the chain: the walk of an unprivileged process.
const walkMode = "walk"

func walkMain(arg string) int {
	pid, err := strconv.Atoi(arg)
	if err == nil {
		w := walk.New(proc.NewTable("/proc"), "/sys", nil)
		err = json.NewEncoder(os.Stdout).Encode(w.Process(context.Background(), pid))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// socketPath returns a path that is short enough for a socket, which anybody may
// enter.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "chain") //nolint:usetesting // t.TempDir is too long for a socket's path
	lab.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// walked is what the walker says of a process.
func walked(t *testing.T, pid int) facts.Chain {
	t.Helper()
	w := walk.New(proc.NewTable("/proc"), "/sys", nil)
	c := w.Process(t.Context(), pid)
	t.Log(text(c))
	return c
}

func text(c facts.Chain) string {
	var b strings.Builder
	for _, l := range c.Links {
		fmt.Fprintf(&b, "\n  %s %s pid %d %s: %s", l.Kind, l.Name, l.PID, l.State, l.Evidence)
	}
	if c.Unknown != "" {
		fmt.Fprintf(&b, "\n  and then unknown: %s", c.Unknown)
	}
	return b.String()
}

// unprivileged is what the walker says in a process of uid 65534.
func unprivileged(t *testing.T, pid int) (c facts.Chain) {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	lab.Must(t, err)
	exe := filepath.Join(filepath.Dir(socketPath(t)), "walk")
	lab.Must(t, os.WriteFile(exe, self, 0o755))
	lab.Must(t, os.Chmod(filepath.Dir(exe), 0o755))
	cmd := exec.Command(exe, strconv.Itoa(pid))
	cmd.Env = append(os.Environ(), waiting.ModeEnv+"="+walkMode)
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	b, err := cmd.Output()
	lab.Must(t, err)
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	t.Log(text(c))
	return c
}

func freePort(t *testing.T) int {
	t.Helper()
	_, port, _ := strings.Cut(lab.FreeAddress(t), ":")
	n, err := strconv.Atoi(port)
	lab.Must(t, err)
	return n
}
