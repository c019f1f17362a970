//go:build e2e

package chain

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	walk "github.com/plegd/plegd/internal/chain"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/lab"
)

// modeEnv says what this program is to be instead of the tests.
const modeEnv = "PLEGD_CHAIN_MODE"

// TestMain runs the tests, or is one of the processes that they start.
func TestMain(m *testing.M) {
	if mode := os.Getenv(modeEnv); mode != "" {
		if err := helper(mode, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, mode, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// process is one that a test started.
type process struct {
	pid int
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a process that says "ready" when it is, and ends it with the test.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	in, err := cmd.StdinPipe()
	lab.Must(t, err)
	out, err := cmd.StdoutPipe()
	lab.Must(t, err)
	cmd.Stderr = os.Stderr
	lab.Must(t, cmd.Start())
	p := &process{pid: cmd.Process.Pid, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := p.out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%s says %q, %v", cmd, line, err)
	}
	return p
}

// perl starts a process of one thread. After "ready" it blocks in the rest of the script.
func perl(t *testing.T, script string, args ...string) *process {
	t.Helper()
	return start(t, exec.Command("perl", append([]string{"-MSocket", "-MFcntl=:DEFAULT,:flock", "-e", "$|=1; " + script, "--"}, args...)...))
}

// program starts this program as something else.
func program(t *testing.T, mode string, args ...string) *process {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), modeEnv+"="+mode)
	return start(t, cmd)
}

// endFirst ends a process before those that a test has started until now: what waits for
// its answer cannot be ended before.
func (p *process) endFirst(t *testing.T) { t.Cleanup(func() { _ = unix.Kill(p.pid, unix.SIGKILL) }) }

func (p *process) stop(t *testing.T) {
	t.Helper()
	lab.Must(t, unix.Kill(p.pid, unix.SIGSTOP))
	eventually(t, func() bool { return strings.HasPrefix(state(p.pid), "T") })
}

func state(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.TrimSpace(string(b[strings.LastIndexByte(string(b), ')')+1:]))
}

// asleep waits until a process has done its work and sleeps.
func (p *process) asleep(t *testing.T) *process {
	t.Helper()
	same := 0
	before := ""
	eventually(t, func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", p.pid))
		if string(b) == before && !strings.HasPrefix(state(p.pid), "R") {
			same++
		} else {
			same = 0
		}
		before = string(b)
		return same >= 5
	})
	return p
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	lab.Eventually(t, 15*time.Second, "it comes to be", func() error {
		if !ok() {
			return errors.New("not yet")
		}
		return nil
	})
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
	cmd.Env = append(os.Environ(), modeEnv+"=walk")
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
