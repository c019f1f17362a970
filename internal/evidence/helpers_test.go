package evidence

import (
	"bufio"
	"context"
	"encoding/json"
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
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/evidencetest"
)

// childEnv tells a child process of these tests what to do: words with newlines between
// them.
const childEnv = "PLEGD_TEST_CHILD"

// childSees is what a child without privilege reports of other processes and a socket.
type childSees struct {
	UID           int
	Process, Gone *health.Process
	Node          *health.Node
	Queue         *health.Queue
	Searched      node.Process
	Errs          map[string]string
}

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
	case "look":
		_ = json.NewEncoder(os.Stdout).Encode(lookAround(t.Context(), number(1), number(2), what[3]))
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// lookAround is what a process sees of another one, of the node and of a socket, and of
// a runtime that is known and then gone.
func lookAround(ctx context.Context, pid, goes int, socket string) childSees {
	out := childSees{UID: os.Getuid(), Errs: map[string]string{}}
	note := func(what string, err error) {
		if err != nil {
			out.Errs[what] = err.Error()
		}
	}
	var err error
	out.Process, err = processIn("/proc", pid).gather(ctx)
	note("process", err)
	_, err = childrenOf("/proc", "/sys", pid).gather(ctx)
	note("children", err)
	_, err = newCgroup("cgroup", "/proc", "/sys", func() int { return pid }).spec.Gather(ctx)
	note("cgroup", err)
	out.Node, _, err = readNode("/proc")
	note("node", err)
	out.Queue, err = queueAt(at(socket)).gather(ctx)
	note("queue", err)
	out.Searched, err = node.NewTable("/proc").Holder(ctx, 1) // nobody's
	note("search", err)

	peer := goes
	p := processOf("/proc", func() int { return peer })
	_, err = p.gather(ctx)
	note("gone", err)
	fmt.Println("known")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	peer = 0
	if err == nil {
		out.Gone, err = p.gather(ctx)
		note("gone", err)
	}
	return out
}

// TestUnprivileged tells what uid 65534 sees of a process of somebody else, and of a
// socket to which it may not connect.
func TestUnprivileged(t *testing.T) {
	needUnixDiag(t)
	const uid = 65534
	path := evidencetest.SocketPath(t)
	l := evidencetest.ListenAt(t, path, 4)
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	evidencetest.Connect(t, path, 1)
	c, goes := startChild(t, "", "threads", "3"), startChild(t, "", "threads", "1")
	var who *syscall.Credential
	if os.Getuid() == 0 {
		who = &syscall.Credential{Uid: uid, Gid: uid}
	} else {
		t.Log("SKIPPED in part: not root, so the looking process has the same uid")
	}
	look := startChildAs(t, who, testExe(t, "look.test"), "look", strconv.Itoa(c.pid), strconv.Itoa(goes.pid), path)
	if look.said != "known" {
		t.Fatalf("it says %q", look.said)
	}
	goes.end()
	if _, err := io.WriteString(look.in, "\n"); err != nil {
		t.Fatal(err)
	}
	var got childSees
	if err := json.Unmarshal([]byte(look.line()), &got); err != nil {
		t.Fatal(err)
	}
	search := got.Errs["search"]
	delete(got.Errs, "search")
	if len(got.Errs) > 0 || got.Process == nil || got.Node == nil || got.Queue == nil || got.Gone == nil {
		t.Fatalf("%+v", got)
	}
	v, priv := got.Process, gatherProcess(t, processIn("/proc", c.pid))
	if !v.Alive || v.PID != c.pid || v.Start.Sub(priv.Start).Abs() > time.Second/node.ClockTicks || v.Threads["S"]+v.Threads["R"] < 4 ||
		v.OpenFDs != -1 && v.OpenFDs != priv.OpenFDs || v.MaxFDs != -1 && v.MaxFDs != priv.MaxFDs {
		t.Errorf("%+v, which is %+v", v, priv)
	}
	if n := got.Node; n.Files == 0 || n.Threads == 0 || n.ThreadsMax == 0 {
		t.Errorf("%+v", n)
	}
	if q := got.Queue; q.Inode != l.Inode() || q.Length != 1 || q.Limit != 4 {
		t.Errorf("%+v", q)
	}
	if got.Gone.Alive || got.Gone.PID != goes.pid {
		t.Errorf("a process that is gone: %+v", got.Gone)
	}
	if who != nil && (got.UID != uid || got.Searched.PID != 0 || !strings.Contains(search, "CAP_SYS_PTRACE")) {
		t.Errorf("uid %d searches: %+v, %q", got.UID, got.Searched, search)
	}
}

// testExe returns the test binary under another name, where anybody may run it.
func testExe(tb testing.TB, name string) string {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	exe := filepath.Join(filepath.Dir(evidencetest.SocketPath(tb)), name)
	if os.Link(self, exe) == nil {
		if info, err := os.Stat(exe); err == nil && info.Mode()&0o005 == 0o005 {
			return exe
		}
		_ = os.Remove(exe)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(exe, b, 0o755); err != nil {
		tb.Fatal(err)
	}
	return exe
}

// child is a process of a test.
type child struct {
	tb  testing.TB
	pid int
	// said is the line by which it said that it is ready.
	said string
	out  *bufio.Reader
	in   io.Writer
	cmd  *exec.Cmd
}

// startChild runs exe, "" for the test binary, and waits until it is ready.
func startChild(tb testing.TB, exe string, what ...string) *child {
	tb.Helper()
	return startChildAs(tb, nil, exe, what...)
}

func startChildAs(tb testing.TB, who *syscall.Credential, exe string, what ...string) *child {
	tb.Helper()
	if exe == "" {
		exe, _ = os.Executable()
	}
	cmd := exec.Command(exe, "-test.run=^TestChild$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(what, "\n"))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		tb.Fatal(err)
	}
	c := &child{tb: tb, pid: cmd.Process.Pid, cmd: cmd, in: in, out: bufio.NewReader(out)}
	tb.Cleanup(c.end)
	c.said = c.line()
	return c
}

func (c *child) line() string {
	c.tb.Helper()
	s, err := c.out.ReadString('\n')
	if err != nil {
		c.tb.Fatalf("the child says %q, %v", s, err)
	}
	return strings.TrimSpace(s)
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
