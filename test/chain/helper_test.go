//go:build e2e

package chain

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
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

	walk "github.com/plegd/plegd/internal/evidence/chain"
	"github.com/plegd/plegd/internal/health"
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

func ready() { fmt.Println("ready") }

// helper is a process with several threads, as every Go program has.
func helper(mode string, args []string) error {
	switch mode {
	case "trace":
		pid, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		runtime.LockOSThread()
		if err := unix.PtraceAttach(pid); err != nil {
			return err
		}
		if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
			return err
		}
		ready()
		select {}
	case "flocks": // a thread of its own waits for each file
		threads()
		for _, file := range args {
			f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return err
			}
			go func() { _ = unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
		}
		ready()
		select {}
	case "dial": // has sent, by a socket that does not block, and waits for the answer
		threads()
		c, err := net.Dial("unix", args[0])
		if err != nil {
			return err
		}
		if _, err := io.WriteString(c, "a question"); err != nil {
			return err
		}
		ready()
		_, _ = c.Read(make([]byte, 1))
		return nil
	case "deadlock":
		threads()
		go func() { time.Sleep(time.Hour) }() // or the Go runtime says what it is
		ready()
		var a, b sync.Mutex
		a.Lock()
		b.Lock()
		go a.Lock()
		b.Lock()
		return nil
	case "fuse":
		return serveNothing(args[0], false)
	case "fusereads": // takes the requests, and waits for the next one
		return serveNothing(args[0], true)
	case "fanotify": // permits nothing
		return permitNothing(args[0])
	case "walk": // what somebody without privilege sees
		pid, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		w := walk.NewWalker("/proc", "/sys")
		defer w.Close()
		return json.NewEncoder(os.Stdout).Encode(w.Process(context.Background(), pid, ""))
	}
	return fmt.Errorf("unknown mode")
}

// threads makes some threads that wait.
func threads() {
	for range 8 {
		go func() {
			runtime.LockOSThread()
			var fds [2]int
			_ = unix.Pipe2(fds[:], unix.O_CLOEXEC)
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fds[0]), Events: unix.POLLIN}}, -1)
		}()
	}
}

// permitNothing is a fanotify agent that reads the events of a directory and answers none.
func permitNothing(dir string) error {
	threads()
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err != nil {
		return err
	}
	const events = unix.FAN_OPEN_PERM | unix.FAN_EVENT_ON_CHILD
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, events, unix.AT_FDCWD, dir); err != nil {
		return err
	}
	ready()
	for b := make([]byte, 4096); ; {
		if _, err := unix.Read(fd, b); err != nil {
			return err
		}
	}
}

// serveNothing mounts a FUSE file system and answers only the kernel's greeting; with
// reads it reads the requests.
func serveNothing(dir string, reads bool) error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Mount("plegd-test", dir, "fuse", unix.MS_NODEV|unix.MS_NOSUID, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		return err
	}
	b := make([]byte, 1<<16)
	n, err := unix.Read(fd, b)
	if err != nil || n < 40 {
		return fmt.Errorf("read the greeting: %d bytes, %w", n, err)
	}
	out := make([]byte, 16+64)
	binary.NativeEndian.PutUint32(out, uint32(len(out)))
	copy(out[8:], b[8:16]) // the request's number
	binary.NativeEndian.PutUint32(out[16:], 7)
	binary.NativeEndian.PutUint32(out[20:], 31)
	binary.NativeEndian.PutUint32(out[36:], 4096)
	if _, err := unix.Write(fd, out); err != nil {
		return err
	}
	ready()
	for reads {
		if _, err := unix.Read(fd, b); err != nil {
			return err
		}
	}
	select {}
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
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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

// perl starts a process of one thread. What follows "ready" is what it waits in.
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
	if err := unix.Kill(p.pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return strings.HasPrefix(state(p.pid), "T") })
}

func state(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.TrimSpace(string(b[strings.LastIndexByte(string(b), ')')+1:]))
}

// asleep waits until a process has done what it was to do, and sleeps.
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// walked is what the walker says of a process.
func walked(t *testing.T, pid int) health.Chain {
	t.Helper()
	w := walk.NewWalker("/proc", "/sys")
	defer w.Close()
	c := w.Process(t.Context(), pid, "")
	t.Log(text(c))
	return c
}

func text(c health.Chain) string {
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
func unprivileged(t *testing.T, pid int) (c health.Chain) {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(filepath.Dir(socketPath(t)), "walk")
	if err := os.WriteFile(exe, self, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(exe), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, strconv.Itoa(pid))
	cmd.Env = append(os.Environ(), modeEnv+"=walk")
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	b, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	t.Log(text(c))
	return c
}
