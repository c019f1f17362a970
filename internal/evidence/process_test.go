package evidence

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/evidencetest"
)

// processIn is the source about one process.
func processIn(procfs string, pid int) *Process {
	return processOf(procfs, func() int { return pid })
}

func processOf(procfs string, peer func() int) *Process {
	return newProcess(&hop{
		procfs: procfs, table: node.NewTable(procfs), queue: func() *health.Queue { return nil }, dialer: NewDialer(DialOptions{}),
		dialed: func() *cri.DialResult { return &cri.DialResult{PeerPID: peer()} },
	})
}

// processWith is a source whose last sample is of a process, 0 for one that has ended.
func processWith(pid int) *Process {
	p := newProcess(&hop{})
	p.Watch.last.Store(&sample[health.Process]{Source: health.Source{Up: true}, value: &health.Process{PID: pid, Alive: pid != 0}})
	return p
}

func gatherProcess(t *testing.T, p *Process) *health.Process {
	t.Helper()
	v, err := p.gather(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestProcessFixture reads a process in all states at once.
func TestProcessFixture(t *testing.T) {
	p := processIn("testdata/proc", 1000)
	p.up = func() time.Duration { return 60 * time.Second } // 5000 ticks are 50 s
	v := gatherProcess(t, p)
	want := map[string]int{"S": 3, "D": 1, "T": 2, "other": 1}
	if diff := cmp.Diff(want, v.Threads); diff != "" {
		t.Error(diff)
	}
	if v.PID != 1000 || v.Comm != "containerd" || !v.Alive || v.MaxFDs != 1048576 || v.OpenFDs != -1 || v.At.Sub(v.Start) != 10*time.Second {
		t.Errorf("%+v", v)
	}
	if len(v.Blocked) != 1 || v.Blocked[0].Channel != "rpc_wait_bit_killable" {
		t.Errorf("blocked %+v", v.Blocked)
	}
	if v.RestartsTotal != 0 || v.Restarts != nil || v.CPU != 0 || v.Delay != 0 || v.Lock != nil {
		t.Errorf("%+v, want nothing of before", v)
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
	if v := gatherProcess(t, p); len(v.Blocked) != 0 {
		t.Errorf("blocked %+v with no thread in D", v.Blocked)
	}
	// Another process by the same pid begins again.
	state(1002, 'D', 5000, 10)
	gatherProcess(t, p)
	evidencetest.WriteTree(t, root, map[string]string{"1000/stat": evidencetest.StatLine(1000, "containerd", 'S', 1, 9000)})
	last := gatherProcess(t, p)
	if len(last.Blocked) != 1 || !last.Blocked[0].Since.Equal(last.At) || last.RestartsTotal != 1 {
		t.Errorf("%+v, want a new process blocked since now", last)
	}

	// Where the kernel counts nothing, each sample stands for itself.
	evidencetest.WriteTree(t, root, map[string]string{"1000/task/1002/schedstat": "0 0 0\n"})
	for range 2 {
		if v := gatherProcess(t, p); len(v.Blocked) != 1 || !v.Blocked[0].Since.Equal(v.At) {
			t.Errorf("nothing counts: blocked %+v, want it since now", v.Blocked)
		}
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
	if len(v.Blocked) < 7 || v.Blocked[0] != (health.BlockedThread{TID: 1000, Since: v.At, Channel: "d", Syscall: "openat"}) ||
		v.Blocked[1].Syscall != "" || v.Blocked[6].Channel != "" {
		t.Errorf("blocked %+v", v.Blocked)
	}
}

// TestProcessStuck: a thread that sleeps and waits for no work is reported once it has
// not run for some seconds, and one in D most of the time although it runs in between.
func TestProcessStuck(t *testing.T) {
	at := time.Now()
	sample := func(state byte, since, first time.Duration, inD, looked int) thread {
		s := thread{Process: node.Process{State: state}, since: at.Add(-since)}
		s.mostly = mostly{first: at.Add(-first), inD: inD, sampled: looked}
		return s
	}
	root := t.TempDir()
	evidencetest.WriteTree(t, root, map[string]string{
		"1/wchan": "anon_pipe_write", "2/wchan": "futex_do_wait", "3/wchan": "sock_alloc_send_pskb", "4/wchan": "io_schedule",
		"5/wchan": "request_wait_answer", "6/wchan": "some_new_wait", "6/syscall": fmt.Sprintf("%d 0x1 0x0 0x0 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_FUTEX),
		"7/wchan": "fuse_dev_do_read", "8/wchan": "0",
	})
	byID := map[int]thread{
		1: sample('S', 20*time.Second, 0, 0, 0), 2: sample('S', time.Hour, 0, 0, 0), 3: sample('S', time.Second, 0, 0, 0),
		4: sample('D', time.Second, 15*time.Second, 14, 15), 5: sample('S', 12*time.Second, 0, 0, 0),
		6: sample('S', time.Hour, 0, 0, 0), 7: sample('S', time.Hour, 0, 0, 0), 8: sample('S', time.Hour, 0, 0, 0),
	}
	v := &health.Process{At: at}
	blocked(root, byID, v)
	want := []health.BlockedThread{
		{TID: 1, Since: at.Add(-20 * time.Second), Asleep: true, Channel: "anon_pipe_write"},
		{TID: 5, Since: at.Add(-12 * time.Second), Asleep: true, Channel: "request_wait_answer"},
		{TID: 4, Since: at.Add(-time.Second), MostlySince: at.Add(-15 * time.Second), Channel: "io_schedule"},
	}
	if !slices.Equal(v.Blocked, want) {
		t.Errorf("blocked %+v", v.Blocked)
	}
	if !byID[2].idle || !byID[8].idle || byID[1].idle {
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
	var before threads
	at, id := time.Now(), node.ID{PID: 1000, Start: 5000}
	look := func(after time.Duration) health.Process {
		t.Helper()
		v := health.Process{At: at.Add(after)}
		if err := before.sample(root, id, &v); err != nil {
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
	// A thread has ended and taken its time along; then the pid is another process.
	thread('S', time.Second, time.Second, 1)
	look(9 * time.Second)
	if v := look(11 * time.Second); v.CPU != 0 || v.Delay != 0 {
		t.Errorf("CPU %f, delay %f, want none", v.CPU, v.Delay)
	}
	thread('S', time.Hour, time.Hour, 407)
	id.Start++
	if v := look(12 * time.Second); v.CPU != 0 || v.Delay != 0 {
		t.Errorf("CPU %f, delay %f of another process by the same pid", v.CPU, v.Delay)
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
		if gone.Alive || gone.PID != 1000 || gone.MaxFDs != known.MaxFDs || gone.Threads["S"] != 3 || gone.RestartsTotal != 0 || !gone.At.After(known.At) {
			t.Fatalf("%+v, want 1000 gone, with its last facts", gone)
		}
	}
	process(5006, "containerd", 'S', 100_060, cgroup)
	process(5007, "containerd", 'R', 100_070, cgroup)
	// What the successor has forked has its name until it executes something else.
	evidencetest.WriteTree(t, root, map[string]string{"5008/stat": evidencetest.StatLine(5008, "containerd", 'S', 5007, 100_080), "5008/cgroup": cgroup})
	v := gatherProcess(t, p)
	if !v.Alive || v.PID != 5007 || v.RestartsTotal != 1 || !slices.Equal(v.Restarts, []time.Time{v.At}) {
		t.Errorf("%+v, want the newest of the two", v)
	}
	peer = 5007 // now it listens
	if again := gatherProcess(t, p); again.RestartsTotal != 1 || !slices.Equal(again.Restarts, v.Restarts) {
		t.Errorf("%+v, want one restart", again)
	}
}

// TestProcessGone: what ends a process, and what only looks so.
func TestProcessGone(t *testing.T) {
	for _, pid := range []int{0, 1, 4000, 4001, -5, 3012} { // none, init, no stat line, none, none, a zombie
		p := processIn("testdata/proc", pid)
		if v, err := p.gather(t.Context()); !errors.Is(err, ErrNoData) || v != nil {
			t.Errorf("pid %d, never seen: %+v, %v", pid, v, err)
		}
	}
	hidden := t.TempDir()
	evidencetest.WriteTree(t, hidden, map[string]string{"stat": "btime 1\n"})
	for root, want := range map[string]string{t.TempDir(): "", hidden: "hidepid"} {
		if v, err := processIn(root, 1000).gather(t.Context()); err == nil || errors.Is(err, ErrNoData) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v; want an error (%s), not that it is gone", v, err, want)
		}
	}
	for name, change := range map[string]func(root string){
		"it ends between two reads": func(root string) { _ = os.RemoveAll(filepath.Join(root, "1000/task")) },
		"its number is reused": func(root string) {
			evidencetest.WriteTree(t, root, map[string]string{"1000/stat": evidencetest.StatLine(1000, "bash", 'S', 1, 99_000)})
		},
	} {
		root := evidencetest.CopyTree(t, "testdata/proc")
		p := processIn(root, 1000)
		gatherProcess(t, p)
		change(root)
		if v := gatherProcess(t, p); v.Alive || v.PID != 1000 || v.Comm != "containerd" || v.RestartsTotal != 0 {
			t.Errorf("%s: %+v, want the runtime gone", name, v)
		}
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
	// Lowered from outside below the number of open descriptors.
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
	if err := unix.Prlimit(c.pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}, nil); err != nil {
		t.Fatal(err)
	}
	if open >= limit {
		return // an inherited descriptor keeps the number above the limit
	}
	if free := gatherProcess(t, p); p.spec.Again(free) || !free.ExhaustedAt.Equal(used.At) {
		t.Errorf("some are free again: used up at %s, want at %s; the next look is sooner: %v", free.ExhaustedAt, used.At, p.spec.Again(free))
	}
}
