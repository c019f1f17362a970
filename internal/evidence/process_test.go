package evidence

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/evidencetest"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

// nodeChildEnv tells a child process of these tests what to do: words with
// newlines between them.
const nodeChildEnv = "PLEGD_TEST_NODE_CHILD"

// nodeSees is what a child without privilege reports of a process.
type nodeSees struct {
	UID                                         int
	Process                                     *health.Process
	Children                                    *health.Children
	Cgroup                                      *health.Cgroup
	Node                                        *health.Node
	ProcessErr, ChildrenErr, CgroupErr, NodeErr string
	Searched                                    int
	SearchErr                                   string
	Gone                                        *health.Process
	GoneErr                                     string
}

// TestNodeChild is no test: it is what the child processes run. A child says
// one line when it is ready, and ends with its standard input.
func TestNodeChild(t *testing.T) {
	what := strings.Split(os.Getenv(nodeChildEnv), "\n")
	arg := func(i int) string { return what[min(i, len(what)-1)] }
	number := func(i int) int { n, _ := strconv.Atoi(arg(i)); return n }
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
	case "listen":
		l := evidencetest.ListenAt(t, arg(1), 1)
		fmt.Println("ready", l.Inode())
	case "flock", "posix":
		lockFile(t, what[0], arg(1))
		fmt.Println("ready")
	case "wait":
		fmt.Println("ready")
		go lockFile(t, arg(1), arg(2))
	case "busy":
		for range number(1) {
			go func() {
				for n := 0; ; n++ {
					runtime.KeepAlive(n)
				}
			}()
		}
		fmt.Println("ready")
	case "look":
		_ = json.NewEncoder(os.Stdout).Encode(lookAround(t.Context(), number(1), number(2)))
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func lockFile(t *testing.T, kind, path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil && kind == "flock" {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	} else if err == nil {
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	if err != nil {
		t.Error(err)
	}
	kept.Store(f)
}

// kept keeps a file of a child from being closed.
var kept atomic.Pointer[os.File]

// lookAround is what a process sees of another one, of the node, and of one
// that is gone.
func lookAround(ctx context.Context, pid, goes int) nodeSees {
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	out := nodeSees{UID: os.Getuid()}
	var err error
	out.Process, err = processIn("/proc", pid).gather(ctx)
	out.ProcessErr = text(err)
	out.Children, err = NewChildren(ChildrenOptions{ProcFS: "/proc", SysFS: "/sys", Table: node.NewTable("/proc"), PID: func() int { return pid }, Socket: func() string { return "" }}).spec.Gather(ctx)
	out.ChildrenErr = text(err)
	out.Cgroup, err = NewCgroup("/proc", "/sys", func() int { return pid }).spec.Gather(ctx)
	out.CgroupErr = text(err)
	out.Node, _, err = readNode("/proc")
	out.NodeErr = text(err)
	out.Searched, err = node.NewTable("/proc").Holder(ctx, 1) // nobody's
	out.SearchErr = text(err)

	// A runtime that is known and then gone, with a listener left.
	peer := goes
	p := NewProcess(ProcessOptions{ProcFS: "/proc", Table: node.NewTable("/proc"), PeerPID: func() int { return peer }, ListenerInode: func() uint64 { return 1 }})
	_, err = p.gather(ctx)
	if err == nil {
		fmt.Println("known")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		peer = 0
		out.Gone, err = p.gather(ctx)
	}
	out.GoneErr = text(err)
	return out
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
	cmd := exec.Command(exe, "-test.run=^TestNodeChild$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), nodeChildEnv+"="+strings.Join(what, "\n"))
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

// processIn is the source about one process.
func processIn(procfs string, pid int) *Process {
	return processOf(procfs, func() int { return pid })
}

func processOf(procfs string, peer func() int) *Process {
	return NewProcess(ProcessOptions{ProcFS: procfs, Table: node.NewTable(procfs), PeerPID: peer, ListenerInode: func() uint64 { return 0 }})
}

func gatherProcess(t *testing.T, p *Process) *health.Process {
	t.Helper()
	v, err := p.gather(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func inodeOfInfo(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// TestProcessFixture reads a process in all states at once.
func TestProcessFixture(t *testing.T) {
	p := processIn("testdata/proc", 1000)
	p.up = func() time.Duration { return 60 * time.Second } // 5000 ticks are 50 s
	v := gatherProcess(t, p)
	want := map[string]int{"R": 0, "S": 3, "D": 1, "T": 2, "Z": 0, "other": 1}
	if diff := cmp.Diff(want, v.Threads); diff != "" {
		t.Error(diff)
	}
	if v.PID != 1000 || v.Comm != "containerd" || !v.Alive || v.MaxFDs != 1048576 || v.OpenFDs != -1 || v.At.Sub(v.Start) != 10*time.Second {
		t.Errorf("%+v", v)
	}
	if diff := cmp.Diff([]string{"rpc_wait_bit_killable"}, v.WaitChannels); diff != "" {
		t.Error(diff)
	}
	if v.RestartsTotal != 0 || v.Restarts != nil || v.CPU != 0 || v.Delay != 0 || v.Lock != nil {
		t.Errorf("%+v, want nothing of before", v)
	}
	if p.PID() != 1000 {
		t.Errorf("pid %d", p.PID())
	}
}

// TestProcessBlocked follows threads in D through the samples: one counts for as
// long as it has not run.
func TestProcessBlocked(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	p := processIn(root, 1000)
	state := func(tid int, state byte, start uint64, runs int) {
		t.Helper()
		evidencetest.WriteTree(t, root, map[string]string{
			fmt.Sprintf("1000/task/%d/stat", tid):      evidencetest.StatLine(tid, "containerd", state, 1, start),
			fmt.Sprintf("1000/task/%d/schedstat", tid): fmt.Sprintf("1000 100 %d\n", runs),
		})
	}
	blocked := func(v *health.Process) (tids []int) {
		for _, b := range v.Blocked {
			tids = append(tids, b.TID)
		}
		return tids
	}
	state(1002, 'D', 5000, 7)
	first := gatherProcess(t, p)
	if len(first.Blocked) != 1 || !first.Blocked[0].Since.Equal(first.At) || first.Blocked[0].Channel != "rpc_wait_bit_killable" {
		t.Fatalf("blocked %+v, want thread 1002 since now", first.Blocked)
	}
	second := gatherProcess(t, p)
	if len(second.Blocked) != 1 || !second.Blocked[0].Since.Equal(first.At) {
		t.Errorf("blocked %+v, want since %s", second.Blocked, first.At)
	}
	// Another thread in D begins its own time, and stands behind it.
	state(1001, 'D', 5000, 3)
	third := gatherProcess(t, p)
	if !slices.Equal(blocked(third), []int{1002, 1001}) || !third.Blocked[0].Since.Equal(first.At) || !third.Blocked[1].Since.Equal(third.At) {
		t.Errorf("blocked %+v", third.Blocked)
	}
	// It has run in between, and waits again; the other is a new thread.
	state(1002, 'D', 5000, 8)
	state(1001, 'D', 5001, 1)
	if v := gatherProcess(t, p); len(v.Blocked) != 2 || !v.Blocked[0].Since.Equal(v.At) || !v.Blocked[1].Since.Equal(v.At) {
		t.Errorf("blocked %+v, want both since now", v.Blocked)
	}
	state(1001, 'S', 5001, 2)
	state(1002, 'S', 5000, 9)
	if v := gatherProcess(t, p); len(v.Blocked) != 0 || v.WaitChannels != nil {
		t.Errorf("blocked %+v with no thread in D", v.Blocked)
	}
	// Another process by the same pid begins again.
	state(1002, 'D', 5000, 10)
	gatherProcess(t, p)
	evidencetest.WriteTree(t, root, map[string]string{"1000/stat": evidencetest.StatLine(1000, "containerd", 'S', 1, 9000)})
	if v := gatherProcess(t, p); len(v.Blocked) != 1 || !v.Blocked[0].Since.Equal(v.At) || v.RestartsTotal != 1 {
		t.Errorf("%+v, want a new process blocked since now", v)
	}
}

// TestProcessBlockedWithoutSchedstat: a kernel without scheduler statistics
// writes zeroes there; the context switches then say whether a thread has run.
func TestProcessBlockedWithoutSchedstat(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	p := processIn(root, 1000)
	switches := func(n int) {
		t.Helper()
		evidencetest.WriteTree(t, root, map[string]string{
			"1000/task/1002/stat":      evidencetest.StatLine(1002, "containerd", 'D', 1, 5000),
			"1000/task/1002/schedstat": "0 0 0\n",
			"1000/task/1002/status":    fmt.Sprintf("Name:\tcontainerd\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t2\n", n),
		})
	}
	switches(5)
	first := gatherProcess(t, p)
	if v := gatherProcess(t, p); len(v.Blocked) != 1 || !v.Blocked[0].Since.Equal(first.At) {
		t.Errorf("blocked %+v, want since %s", v.Blocked, first.At)
	}
	switches(6)
	if v := gatherProcess(t, p); len(v.Blocked) != 1 || !v.Blocked[0].Since.Equal(v.At) {
		t.Errorf("blocked %+v, want since now", v.Blocked)
	}
	// Where nothing counts, each sample stands for itself.
	if err := os.Remove(filepath.Join(root, "1000/task/1002/status")); err != nil {
		t.Fatal(err)
	}
	gatherProcess(t, p)
	if v := gatherProcess(t, p); len(v.Blocked) != 1 || !v.Blocked[0].Since.Equal(v.At) {
		t.Errorf("blocked %+v, want since now", v.Blocked)
	}
}

// TestProcessBlockedWhere reads where threads wait, and in which system call.
func TestProcessBlockedWhere(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	p := processIn(root, 1000)
	for tid, place := range []string{"d", "b", "a", "b", "c", "a", "0"} {
		evidencetest.WriteTree(t, root, map[string]string{
			fmt.Sprintf("1000/task/%d/stat", 1000+tid):    evidencetest.StatLine(1000+tid, "containerd", 'D', 1, 5000),
			fmt.Sprintf("1000/task/%d/wchan", 1000+tid):   place,
			fmt.Sprintf("1000/task/%d/syscall", 1000+tid): "-1 0x7f 0xcb\n",
		})
	}
	evidencetest.WriteTree(t, root, map[string]string{"1000/task/1000/syscall": fmt.Sprintf("%d 0xffffff9c 0x55 0x241 0x1b6 0x0 0x20 0x7f 0x7f\n", unix.SYS_OPENAT)})
	v := gatherProcess(t, p)
	if !slices.Equal(v.WaitChannels, []string{"a", "b", "c", "d"}) {
		t.Errorf("wait channels %q", v.WaitChannels)
	}
	if len(v.Blocked) < 7 || v.Blocked[0] != (health.BlockedThread{TID: 1000, Since: v.At, Channel: "d", Syscall: "openat"}) ||
		v.Blocked[1].Syscall != "" || v.Blocked[6].Channel != "" {
		t.Errorf("blocked %+v", v.Blocked)
	}
	for line, want := range map[string]string{
		"": "", "running\n": "", "-1 0x7f 0xcb\n": "", fmt.Sprintf("%d 0x1 0x2\n", unix.SYS_FDATASYNC): "fdatasync", fmt.Sprintf("%d 0x1\n", unix.SYS_FUTEX): "",
	} {
		if got := proc.FileSyscall([]byte(line)); got != want {
			t.Errorf("syscall of %q: %q, want %q", line, got, want)
		}
	}
}

// TestProcessStuck: a thread that sleeps and waits for no work is reported once it has
// not run for some seconds, and one in D most of the time although it runs in between.
func TestProcessStuck(t *testing.T) {
	at := time.Now()
	sample := func(state byte, since, first time.Duration, inD, looked int) threadSample {
		s := threadSample{state: state, since: at.Add(-since)}
		s.mostly = mostly{first: at.Add(-first), inD: inD, sampled: looked}
		return s
	}
	root := t.TempDir()
	evidencetest.WriteTree(t, root, map[string]string{
		"1/wchan": "anon_pipe_write", "2/wchan": "futex_do_wait", "3/wchan": "sock_alloc_send_pskb", "4/wchan": "io_schedule",
		"5/wchan": "request_wait_answer", "6/wchan": "some_new_wait", "6/syscall": fmt.Sprintf("%d 0x1 0x0 0x0 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_FUTEX),
		"7/wchan": "fuse_dev_do_read", "8/wchan": "0",
	})
	threads := map[int]threadSample{
		1: sample('S', 20*time.Second, 0, 0, 0), 2: sample('S', time.Hour, 0, 0, 0), 3: sample('S', time.Second, 0, 0, 0),
		4: sample('D', time.Second, 15*time.Second, 14, 15), 5: sample('S', 12*time.Second, 0, 0, 0),
		6: sample('S', time.Hour, 0, 0, 0), 7: sample('S', time.Hour, 0, 0, 0), 8: sample('S', time.Hour, 0, 0, 0),
	}
	v := &health.Process{At: at}
	var r proc.Reader
	blocked(&r, root, threads, v)
	want := []health.BlockedThread{
		{TID: 1, Since: at.Add(-20 * time.Second), Asleep: true, Channel: "anon_pipe_write"},
		{TID: 5, Since: at.Add(-12 * time.Second), Asleep: true, Channel: "request_wait_answer"},
		{TID: 4, Since: at.Add(-time.Second), MostlySince: at.Add(-15 * time.Second), Channel: "io_schedule"},
	}
	if !slices.Equal(v.Blocked, want) {
		t.Errorf("blocked %+v", v.Blocked)
	}
	if !threads[2].idle || !threads[8].idle || threads[1].idle {
		t.Error("which of them wait for work is remembered")
	}
	m := mostly{}
	for i := range 40 { // one run in four looks, then none in D
		if m = m.next("DDDS"[i%4], at.Add(time.Duration(i)*time.Second)); i == 39 && !m.first.Equal(at) {
			t.Errorf("in D for most of 40 s: %+v", m)
		}
	}
	for range 20 {
		m = m.next('S', at)
	}
	if m != (mostly{}) {
		t.Errorf("not in D any more: %+v", m)
	}
}

// TestProcessWaitsForCPU: a thread that waits for a CPU has its time counted
// before it gets one, and only once.
func TestProcessWaitsForCPU(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	thread := func(state byte, run, delay time.Duration, runs int) {
		t.Helper()
		evidencetest.WriteTree(t, root, map[string]string{
			"1000/task/1000/stat":      evidencetest.StatLine(1000, "containerd", state, 1, 5000),
			"1000/task/1000/schedstat": fmt.Sprintf("%d %d %d\n", run, delay, runs),
		})
	}
	var before threadTimes
	at := time.Now()
	look := func(after time.Duration) health.Process {
		t.Helper()
		v := health.Process{At: at.Add(after)}
		if err := before.sample(&proc.Reader{}, root, proc.ID{PID: 1000, Start: 5000}, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	thread('R', time.Second, time.Second, 5)
	look(0)
	if v := look(2 * time.Second); math.Abs(v.Delay-1) > 1e-6 || v.CPU != 0 || v.DelayPerRun != 2*time.Second {
		t.Errorf("delay %f, %s each time, CPU %f; want all of the time", v.Delay, v.DelayPerRun, v.CPU)
	}
	// It got one after 2.5 s, and ran for 10 ms.
	thread('S', time.Second+10*time.Millisecond, time.Second+2500*time.Millisecond, 6)
	if v := look(3 * time.Second); math.Abs(v.Delay-2.5/3) > 1e-6 || math.Abs(v.CPU-.01) > 1e-6 {
		t.Errorf("delay %f, CPU %f; want 2.5 s in 3 s, and 10 ms in the last one", v.Delay, v.CPU)
	}
	// It waits often, and briefly, as on a busy node.
	thread('S', 2*time.Second, 4500*time.Millisecond, 206)
	look(5 * time.Second)
	thread('S', 3*time.Second, 5500*time.Millisecond, 406)
	if v := look(7 * time.Second); v.DelayPerRun != 5*time.Millisecond {
		t.Errorf("%s each time, want 5ms", v.DelayPerRun)
	}
}

// TestProcessCPU works out the shares of CPU time out of schedstat, and none
// across two processes.
func TestProcessCPU(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	p := processIn(root, 1000)
	first := gatherProcess(t, p)
	add := func(run, delay time.Duration) {
		evidencetest.WriteTree(t, root, map[string]string{"1000/task/1000/schedstat": fmt.Sprintf("%d %d 42\n", time.Second+run, time.Second/2+delay)})
	}
	p.threads.sums[0].at = p.threads.sums[0].at.Add(-time.Second) // a second ago
	add(500*time.Millisecond, 250*time.Millisecond)
	v := gatherProcess(t, p)
	took := v.At.Sub(first.At).Seconds() + 1
	if math.Abs(v.CPU-.5/took) > 1e-6 || math.Abs(v.Delay-.25/took) > 1e-6 {
		t.Errorf("CPU %f, delay %f, want .5 and .25", v.CPU, v.Delay)
	}
	add(0, 0) // a thread ended and took its time along
	for i := range p.threads.sums {
		p.threads.sums[i].at = p.threads.sums[i].at.Add(-delayWindow)
	}
	if v := gatherProcess(t, p); v.CPU != 0 || v.Delay != 0 {
		t.Errorf("CPU %f, delay %f, want none", v.CPU, v.Delay)
	}
	add(time.Hour, time.Hour)
	evidencetest.WriteTree(t, root, map[string]string{"1000/stat": evidencetest.StatLine(1000, "containerd", 'S', 1, 9000)})
	if v := gatherProcess(t, p); v.CPU != 0 || v.Delay != 0 {
		t.Errorf("CPU %f, delay %f of another process by the same pid", v.CPU, v.Delay)
	}
}

// TestProcessNone: there is nothing to say before a process was seen.
func TestProcessNone(t *testing.T) {
	for _, pid := range []int{0, 1, 4000, 4001, -5, 3012} { // none, init, no stat line, none, none, a zombie
		p := processIn("testdata/proc", pid)
		if v, err := p.gather(t.Context()); !errors.Is(err, ErrNoData) || v != nil || p.PID() != 0 {
			t.Errorf("pid %d: %+v, %v", pid, v, err)
		}
	}
	if v, err := processIn(t.TempDir(), 1000).gather(t.Context()); err == nil || errors.Is(err, ErrNoData) {
		t.Errorf("%+v, %v: want an error without a /proc", v, err)
	}
}

// TestProcessEndsMeanwhile: a process that ends between two reads is gone, and
// no fault of the source.
func TestProcessEndsMeanwhile(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	p := processIn(root, 1000)
	gatherProcess(t, p)
	if err := os.RemoveAll(filepath.Join(root, "1000/task")); err != nil {
		t.Fatal(err)
	}
	if v := gatherProcess(t, p); v.Alive || v.PID != 1000 || p.PID() != 0 {
		t.Errorf("%+v, want it gone", v)
	}
}

// TestProcessSuccessor finds the runtime that is being started again, and
// nothing else.
func TestProcessSuccessor(t *testing.T) {
	const cgroup = "0::/system.slice/containerd.service\n"
	root := evidencetest.CopyTree(t, "testdata/proc")
	process := func(pid int, comm string, state byte, start uint64, group string) {
		dir := strconv.Itoa(pid)
		line := evidencetest.StatLine(pid, comm, state, 1, start)
		evidencetest.WriteTree(t, root, map[string]string{dir + "/stat": line, dir + "/cgroup": group, dir + "/task/" + dir + "/stat": line})
	}
	peer := 1000
	p := processOf(root, func() int { return peer })
	p.up = func() time.Duration { return 1000 * time.Second }
	known := gatherProcess(t, p)
	if err := os.RemoveAll(filepath.Join(root, "1000")); err != nil {
		t.Fatal(err)
	}
	process(5001, "containerd", 'S', 4000, cgroup)              // started before it
	process(5002, "containerd", 'S', 90_000, cgroup)            // while it was alive
	process(5003, "containerd", 'S', 100_050, "0::/docker/b\n") // elsewhere
	process(5004, "containerd-shim", 'S', 100_050, cgroup)      // something else
	process(5005, "containerd", 'Z', 100_050, cgroup)           // dead
	for range 2 {
		gone := gatherProcess(t, p)
		if gone.Alive || gone.PID != 1000 || gone.MaxFDs != known.MaxFDs || gone.Threads["S"] != 3 || gone.RestartsTotal != 0 || p.PID() != 0 || !gone.At.After(known.At) {
			t.Fatalf("%+v, want 1000 gone, with what it was", gone)
		}
	}
	process(5006, "containerd", 'S', 100_060, cgroup)
	process(5007, "containerd", 'R', 100_070, cgroup)
	v := gatherProcess(t, p)
	if !v.Alive || v.PID != 5007 || v.RestartsTotal != 1 || !slices.Equal(v.Restarts, []time.Time{v.At}) || p.PID() != 5007 {
		t.Errorf("%+v, want the newest of the two", v)
	}
	peer = 5007 // now it listens
	if again := gatherProcess(t, p); again.RestartsTotal != 1 || !slices.Equal(again.Restarts, v.Restarts) {
		t.Errorf("%+v, want one restart", again)
	}
}

// TestProcessSuccessorForks: a child that the successor has forked, and that is
// yet to become something else, has its name and is newer.
func TestProcessSuccessorForks(t *testing.T) {
	const cgroup = "0::/system.slice/containerd.service\n"
	root := evidencetest.CopyTree(t, "testdata/proc")
	p := processIn(root, 1000)
	p.up = func() time.Duration { return 1000 * time.Second }
	gatherProcess(t, p)
	if err := os.RemoveAll(filepath.Join(root, "1000")); err != nil {
		t.Fatal(err)
	}
	for pid, parent := range map[int]int{5001: 1, 5002: 5001, 5003: 42} { // 5003 is somebody else's child
		line := evidencetest.StatLine(pid, "containerd", 'S', parent, uint64(100_000+pid))
		dir := strconv.Itoa(pid)
		evidencetest.WriteTree(t, root, map[string]string{dir + "/stat": line, dir + "/cgroup": cgroup, dir + "/task/" + dir + "/stat": line})
	}
	if v := gatherProcess(t, p); !v.Alive || v.PID != 5001 {
		t.Errorf("%+v, want 5001", v)
	}
}

// TestProcessNumberReused: the pid that SO_PEERCRED told stays the same when
// the runtime is gone, and may be another process by then.
func TestProcessNumberReused(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	p := processIn(root, 1000)
	gatherProcess(t, p)
	evidencetest.WriteTree(t, root, map[string]string{"1000/stat": evidencetest.StatLine(1000, "bash", 'S', 1, 99_000)})
	if v := gatherProcess(t, p); v.Alive || v.Comm != "containerd" || v.RestartsTotal != 0 || p.PID() != 0 {
		t.Errorf("%+v, want the runtime gone", v)
	}
}

// TestProcessLeaderEnded: a runtime that was killed while one of its threads is
// in the kernel is not gone: it has its listener still.
func TestProcessLeaderEnded(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	p := processIn(root, 1000)
	first := gatherProcess(t, p)
	line := strings.Replace(evidencetest.StatLine(1000, "containerd", 'Z', 1, 5000), "20 0 1 0 5000", "20 0 2 0 5000", 1)
	evidencetest.WriteTree(t, root, map[string]string{"1000/stat": line, "1000/task/1000/stat": line, "1000/task/1000/schedstat": "1000000000 500000000 43\n"})
	if v := gatherProcess(t, p); !v.Alive || v.RestartsTotal != 0 || v.Threads["Z"] != 1 || v.Threads["D"] != 1 || len(v.Blocked) != len(first.Blocked) {
		t.Errorf("%+v, want it alive", v)
	}
}

// TestProcessHidden: what /proc does not show is not gone.
func TestProcessHidden(t *testing.T) {
	root := t.TempDir()
	evidencetest.WriteTree(t, root, map[string]string{"stat": "btime 1\n"})
	v, err := processIn(root, 1000).gather(t.Context())
	if err == nil || errors.Is(err, ErrNoData) || !strings.Contains(err.Error(), "hidepid") || !strings.Contains(err.Error(), "1000") {
		t.Errorf("%+v, %v; want it said that it is hidden", v, err)
	}
}

// TestProcessRestartsKept counts all restarts and remembers the last.
func TestProcessRestartsKept(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	p := processIn(root, 1000)
	before := gatherProcess(t, p)
	var moments []time.Time
	for i := range 25 {
		evidencetest.WriteTree(t, root, map[string]string{"1000/stat": evidencetest.StatLine(1000, "containerd", 'S', 1, uint64(6000+i))})
		v := gatherProcess(t, p)
		moments = append(moments, v.At)
		want := moments[max(0, len(moments)-keptRestarts):]
		if v.RestartsTotal != i+1 || !slices.Equal(v.Restarts, want) {
			t.Fatalf("restart %d: %d, %v", i+1, v.RestartsTotal, v.Restarts)
		}
		if len(before.Restarts) > i {
			t.Fatal("a value that was published has changed")
		}
	}
}

func TestProcessStopped(t *testing.T) {
	c := startChild(t, "", "threads", "5")
	p := processIn("/proc", c.pid)
	if v := gatherProcess(t, p); v.Threads["T"] != 0 || v.Threads["S"]+v.Threads["R"] < 6 || !v.Alive {
		t.Errorf("running: %+v", v)
	}
	c.signal(syscall.SIGSTOP)
	eventually(t, func() bool {
		v := gatherProcess(t, p)
		all := 0
		for _, n := range v.Threads {
			all += n
		}
		return all >= 6 && v.Threads["T"] == all
	})
	c.signal(syscall.SIGCONT)
	eventually(t, func() bool { return gatherProcess(t, p).Threads["T"] == 0 })
}

func TestProcessFDs(t *testing.T) {
	const limit = 64
	c := startChild(t, "", "fds", strconv.Itoa(limit))
	p := processIn("/proc", c.pid)
	v := gatherProcess(t, p)
	// One that it inherited may have a higher number and count above the limit.
	open := limit
	if all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.pid)); err == nil {
		open = len(all)
	}
	if v.MaxFDs != limit || v.OpenFDs != open || open < limit {
		t.Errorf("%d of %d, want %d of %d", v.OpenFDs, v.MaxFDs, open, limit)
	}
	// Lowered from outside below what is open.
	if err := unix.Prlimit(c.pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 8, Max: limit}, nil); err != nil {
		t.Fatal(err)
	}
	used := gatherProcess(t, p)
	if used.MaxFDs != 8 || used.OpenFDs != open || !used.ExhaustedAt.Equal(used.At) {
		t.Errorf("%d of %d, used up at %s; want %d of 8, at %s", used.OpenFDs, used.MaxFDs, used.ExhaustedAt, open, used.At)
	}
	if !p.spec.Again(used) {
		t.Error("the next look is no sooner while none is free")
	}
	free := &health.Process{At: time.Now(), Alive: true, OpenFDs: 7, MaxFDs: 8}
	p.carryOver(free)
	if urgent := p.spec.Again(free); urgent || !free.ExhaustedAt.Equal(used.At) {
		t.Errorf("some are free again: used up at %s, want at %s; the next look is sooner: %v", free.ExhaustedAt, used.At, urgent)
	}
}

func TestProcessReplaced(t *testing.T) {
	exe := testExe(t, "replaced.test")
	a := startChild(t, exe, "threads", "1")
	peer := a.pid
	p := processOf("/proc", func() int { return peer })
	before := gatherProcess(t, p)
	if age := time.Since(before.Start); age < -time.Second || age > time.Minute {
		t.Errorf("started %s ago", age)
	}
	a.end()
	gone := gatherProcess(t, p)
	if gone.Alive || gone.PID != a.pid || gone.Comm != "replaced.test" || gone.OpenFDs != before.OpenFDs || !gone.Start.Equal(before.Start) || gone.RestartsTotal != 0 || p.PID() != 0 {
		t.Errorf("%+v, want it gone and the rest as in %+v", gone, before)
	}
	if !before.Alive {
		t.Error("a value that was published has changed")
	}
	b := startChild(t, exe, "threads", "1")
	peer = b.pid
	v := gatherProcess(t, p)
	if !v.Alive || v.PID != b.pid || v.RestartsTotal != 1 || !slices.Equal(v.Restarts, []time.Time{v.At}) || p.PID() != b.pid {
		t.Errorf("%+v, want %d and one restart", v, b.pid)
	}
	if again := gatherProcess(t, p); again.RestartsTotal != 1 || len(again.Restarts) != 1 {
		t.Errorf("%+v, want one restart still", again)
	}
}

func TestProcessByInode(t *testing.T) {
	c := startChild(t, "", "listen", evidencetest.SocketPath(t))
	inode, err := strconv.ParseUint(strings.TrimPrefix(c.said, "ready "), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", c.pid)); err != nil {
		t.Skipf("SKIPPED: nothing here has been tested, the descriptors of other processes may not be read: %v", err)
	}
	for _, peer := range []int{0, 1} {
		p := NewProcess(ProcessOptions{ProcFS: "/proc", Table: node.NewTable("/proc"), PeerPID: func() int { return peer }, ListenerInode: func() uint64 { return inode }})
		if v := gatherProcess(t, p); v.PID != c.pid || !v.Alive {
			t.Errorf("peer %d: %+v, want %d", peer, v, c.pid)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if pid, err := node.NewTable("/proc").Holder(ctx, uint32(inode)); err == nil {
		t.Errorf("%d, want an error once the time is over", pid)
	}
}

// TestProcessKeepsNoFile: a sample leaves no file open, as docs/security.md says.
func TestProcessKeepsNoFile(t *testing.T) {
	files := func() int { return len(openIn(t)) }
	p := processIn("/proc", os.Getpid())
	gatherProcess(t, p)
	before := files()
	for range 3 {
		gatherProcess(t, p)
	}
	if after := files(); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func openIn(t *testing.T) []os.DirEntry {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestNodeUnprivileged tells what uid 65534 sees of a process of somebody else.
func TestNodeUnprivileged(t *testing.T) {
	const uid = 65534
	c, goes := startChild(t, "", "threads", "3"), startChild(t, "", "threads", "1")
	var who *syscall.Credential
	if os.Getuid() == 0 {
		who = &syscall.Credential{Uid: uid, Gid: uid}
	} else {
		t.Log("SKIPPED in part: not root, so the looking process has the same uid")
	}
	look := startChildAs(t, who, testExe(t, "look.test"), "look", strconv.Itoa(c.pid), strconv.Itoa(goes.pid))
	if look.said != "known" {
		t.Fatalf("it says %q", look.said)
	}
	goes.end()
	if _, err := io.WriteString(look.in, "\n"); err != nil {
		t.Fatal(err)
	}
	var got nodeSees
	if err := json.Unmarshal([]byte(look.line()), &got); err != nil {
		t.Fatal(err)
	}
	priv := gatherProcess(t, processIn("/proc", c.pid))
	if got.ProcessErr != "" || got.Process == nil {
		t.Fatalf("process: %s", got.ProcessErr)
	}
	v := got.Process
	if !v.Alive || v.PID != c.pid || v.Start.Sub(priv.Start).Abs() > time.Second/proc.ClockTicks || v.OpenFDs != -1 && v.OpenFDs != priv.OpenFDs || v.MaxFDs != -1 && v.MaxFDs != priv.MaxFDs || v.Threads["S"]+v.Threads["R"] < 4 || v.WaitChannels != nil {
		t.Errorf("%+v, which is %+v", v, priv)
	}
	if got.ChildrenErr != "" || got.CgroupErr != "" || got.NodeErr != "" {
		t.Errorf("children %q, cgroup %q, node %q", got.ChildrenErr, got.CgroupErr, got.NodeErr)
	}
	if n := got.Node; n != nil && (n.Files == 0 || n.Threads == 0 || n.ThreadsMax == 0) {
		t.Errorf("%+v", n)
	}
	if got.Gone == nil || got.Gone.Alive || got.Gone.PID != goes.pid {
		t.Errorf("one that is gone: %+v, %s", got.Gone, got.GoneErr)
	}
	if who != nil && (got.UID != uid || got.Searched != 0 || !strings.Contains(got.SearchErr, "CAP_SYS_PTRACE")) {
		t.Errorf("uid %d searches: %d, %q", got.UID, got.Searched, got.SearchErr)
	}
	t.Logf("uid %d sees %d of %d fds", got.UID, v.OpenFDs, v.MaxFDs)
}
