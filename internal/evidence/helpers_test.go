package evidence

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/test/evidencetest"
)

// childEnv tells a child process of these tests what to do: words with newlines between
// them.
const childEnv = "PLEGD_TEST_CHILD"

// TestChild is no test: it is what the child processes run. A child says one line when
// it is ready, and ends with its standard input.
func TestChild(t *testing.T) {
	what := strings.Split(os.Getenv(childEnv), "\n")
	number := func(i int) int { n, _ := strconv.Atoi(what[i]); return n }
	switch what[0] {
	case "":
		return
	case "threads":
		var up sync.WaitGroup
		for range number(1) {
			up.Add(1)
			go func() {
				runtime.LockOSThread()
				up.Done()
				select {}
			}()
		}
		up.Wait()
		fmt.Println("ready")
	case "fds":
		limit := unix.Rlimit{Cur: uint64(number(1)), Max: uint64(number(1))}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
				break
			}
		}
		fmt.Println("ready")
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// testExe returns the test binary under another name.
func testExe(tb testing.TB, name string) string {
	tb.Helper()
	self, err := os.Executable()
	exe := filepath.Join(tb.TempDir(), name)
	if err := errors.Join(err, os.Symlink(self, exe)); err != nil {
		tb.Fatal(err)
	}
	return exe
}

// child is a process of a test.
type child struct {
	tb  testing.TB
	pid int
	cmd *exec.Cmd
}

// startChild runs exe, "" for the test binary, and waits until it is ready.
func startChild(tb testing.TB, exe string, what ...string) *child {
	tb.Helper()
	if exe == "" {
		exe, _ = os.Executable()
	}
	cmd := exec.Command(exe, "-test.run=^TestChild$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(what, "\n"))
	cmd.Stderr = os.Stderr
	_, err1 := cmd.StdinPipe() // it ends with this
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		tb.Fatal(err)
	}
	c := &child{tb: tb, pid: cmd.Process.Pid, cmd: cmd}
	tb.Cleanup(c.end)
	if said, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		tb.Fatalf("the child says %q, %v", said, err)
	}
	return c
}

// end kills the process and waits until it is gone.
func (c *child) end() {
	if c.cmd != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		c.cmd = nil
	}
}

func (c *child) signal(s syscall.Signal) {
	c.tb.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.tb.Fatal(err)
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("not within 10 s")
		}
	}
}

func at(path string) func() string { return func() string { return path } }

// needUnixDiag skips where the kernel has no unix_diag.
func needUnixDiag(tb testing.TB) {
	tb.Helper()
	evidencetest.NeedUnixDiag(tb, node.EachSocket(tb.Context(), 1<<node.Listening, func(node.Socket) {}))
}
