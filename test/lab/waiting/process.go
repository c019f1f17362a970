//go:build e2e

package waiting

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/must"
)

// ModeEnv names what the test binary is to be instead of the tests.
const ModeEnv = "PLEGD_WAITING_MODE"

// Main runs the process that ModeEnv names, and exits with it. It returns where that is unset.
// TestMain calls it first.
func Main() {
	mode := os.Getenv(ModeEnv)
	if mode == "" {
		return
	}
	if err := run(mode, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, mode, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Process is a process that a test has started.
type Process struct {
	PID int
	// In is its standard input, Out its output after "ready".
	In  io.WriteCloser
	Out *bufio.Reader
	// End kills it. The end of the test does so, too.
	End func()
}

// Start starts a process that prints "ready" when it is, and ends it with the test.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, out := must.Start(t, cmd)
	p := &Process{PID: cmd.Process.Pid, In: in, Out: bufio.NewReader(out), End: func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}}
	if line, err := p.Out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%s prints %q, %v", cmd, line, err)
	}
	return p
}

// Perl starts a process of one thread. After "ready" it blocks in the rest of the script.
func Perl(t testing.TB, script string, args ...string) *Process {
	t.Helper()
	return Start(t, exec.Command("perl", append([]string{"-MSocket", "-MFcntl=:DEFAULT,:flock", "-e", "$|=1; " + script, "--"}, args...)...))
}

// Program starts the test binary in a mode.
func Program(t testing.TB, mode string, args ...string) *Process {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), ModeEnv+"="+mode)
	return Start(t, cmd)
}

// EndFirst ends the process before those that the test has started until now: a process that
// waits for its answer cannot be ended before.
func (p *Process) EndFirst(t testing.TB) {
	t.Cleanup(func() { _ = unix.Kill(p.PID, unix.SIGKILL) })
}

// Stop stops the process.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	lab.Must(t, unix.Kill(p.PID, unix.SIGSTOP))
	Eventually(t, func() bool { return strings.HasPrefix(lab.State(p.PID), "T") && !anyRuns(p.PID) })
}

// anyRuns reports whether a thread is neither stopped nor in D, which ends first.
func anyRuns(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return slices.ContainsFunc(threads, func(file string) bool {
		b, err := os.ReadFile(file)
		return err == nil && !strings.ContainsRune("TtDZX", rune(lab.AfterName(b)[0]))
	})
}

// Asleep waits until the process has done its work and sleeps.
func (p *Process) Asleep(t testing.TB) *Process {
	t.Helper()
	same := 0
	before := ""
	Eventually(t, func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", p.PID))
		if string(b) == before && !strings.HasPrefix(lab.State(p.PID), "R") {
			same++
		} else {
			same = 0
		}
		before = string(b)
		return same >= 5
	})
	return p
}

// Child waits for a child of the process.
func (p *Process) Child(t testing.TB) *Process {
	t.Helper()
	child := 0
	Eventually(t, func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.PID, p.PID))
		child, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return child != 0
	})
	return &Process{PID: child}
}

// Eventually waits until a condition holds.
func Eventually(t testing.TB, ok func() bool) {
	t.Helper()
	lab.Eventually(t, 15*time.Second, "the condition holds", func() error {
		if !ok() {
			return errors.New("not yet")
		}
		return nil
	})
}
