package evidence

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// processIn is the source about one process.
func processIn(procfs string, pid int) *Process {
	return processOf(procfs, func() int { return pid })
}

func processOf(procfs string, peer func() int) *Process {
	return newProcess(&hop{
		procfs: procfs, table: proc.NewTable(procfs), queue: func() *facts.Queue { return nil }, dialer: NewDialer(DialOptions{}),
		dialed: func() *cri.DialResult { return &cri.DialResult{PeerPID: peer()} },
	})
}

// processWith is a source whose last sample is of a process, 0 for one that has ended.
func processWith(s proc.Process) *Process {
	p := newProcess(&hop{})
	v := &facts.Process{PID: s.PID, Comm: s.Comm, StartTicks: s.Start, Alive: s.PID != 0}
	p.Watch.last.Store(&sample[facts.Process]{Source: facts.Source{Up: true}, value: v})
	return p
}

// sampledAt is a source with a sample of a process as root shows it.
func sampledAt(root string, pid int) *Process {
	s, _ := proc.ReadStat(root, pid) // zero of none
	return processWith(s)
}

func gatherProcess(t *testing.T, p *Process) *facts.Process {
	t.Helper()
	v, err := p.gather(t.Context())
	must.Do(t, err)
	return v
}

// TestProcessFixture reads a process in all states at once.
func TestProcessFixture(t *testing.T) {
	p := processIn("testdata/proc", 1000)
	p.up = func() time.Duration { return 60 * time.Second } // 5000 ticks are 50 s
	v := gatherProcess(t, p)
	want := map[string]int{"S": 3, "D": 1, "T": 2, "other": 1}
	check.Same(t, v.Threads, want, "threads")
	if v.PID != 1000 || v.Comm != "containerd" || !v.Alive || v.MaxFDs != 1048576 || v.HardFDs != 1048576 || v.OpenFDs != -1 || v.At.Sub(v.Start) != 10*time.Second {
		t.Errorf("%+v", v)
	}
	if len(v.Blocked) != 1 || v.Blocked[0].Channel != "rpc_wait_bit_killable" {
		t.Errorf("blocked %+v", v.Blocked)
	}
	if v.RestartsTotal != 0 || v.Restarts != nil || v.CPU != 0 || v.Delay != 0 || v.Lock != nil {
		t.Errorf("%+v, want nothing of before", v)
	}
}

// TestProcessBlocked follows threads in D through samples a second apart: one counts for as
// long as it has not run.
func TestProcessBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := evidencetest.CopyTree(t, "testdata/proc")
		p := processIn(root, 1000)
		thread := func(tid int, state byte, start uint64, schedstat string) {
			evidencetest.WriteTree(t, root, map[string]string{
				fmt.Sprintf("1000/task/%d/stat", tid):      evidencetest.StatLine(tid, "containerd", state, 1, start),
				fmt.Sprintf("1000/task/%d/schedstat", tid): schedstat,
			})
		}
		for _, step := range []struct {
			name   string
			change func()
			want   string // the threads, and for how long
		}{
			{"one in D", func() { thread(1002, 'D', 5000, "9 9 7") }, "1002 0s "},
			{"it stays", func() {}, "1002 1s "},
			{"another one begins its own time", func() { thread(1001, 'D', 5000, "9 9 3") }, "1002 2s 1001 0s "},
			{"it has run in between", func() { thread(1002, 'D', 5000, "9 9 8") }, "1001 1s 1002 0s "},
			{"a new thread by the same number", func() { thread(1001, 'D', 5001, "9 9 3") }, "1002 1s 1001 0s "},
			{"none", func() { thread(1001, 'S', 5001, "9 9 4"); thread(1002, 'S', 5000, "9 9 9") }, ""},
			{"again", func() { thread(1002, 'D', 5000, "9 9 10") }, "1002 0s "},
			{"another process by the same pid", func() {
				evidencetest.WriteTree(t, root, map[string]string{"1000/stat": evidencetest.StatLine(1000, "containerd", 'S', 1, 9000)})
			}, "1002 0s "},
			{"the kernel counts nothing", func() { thread(1002, 'D', 5000, "0 0 0") }, "1002 0s "},
			{"each sample stands for itself", func() {}, "1002 0s "},
		} {
			step.change()
			got := ""
			for _, b := range gatherProcess(t, p).Blocked {
				got += fmt.Sprintf("%d %s ", b.TID, time.Since(b.Since))
			}
			check.Equal(t, got, step.want, "%s: blocked", step.name)
			time.Sleep(time.Second)
		}
	})
}

// TestProcessStuck: a thread that sleeps and waits for no work is reported once it has
// not run for some seconds, and one in D most of the time although it runs in between.
func TestProcessStuck(t *testing.T) {
	at := time.Now()
	sample := func(state byte, since, first time.Duration, inD, looked int) thread {
		s := thread{Thread: proc.Thread{Process: proc.Process{State: state}}, since: at.Add(-since)}
		s.mostly = mostly{first: at.Add(-first), inD: inD, sampled: looked}
		return s
	}
	root := t.TempDir()
	evidencetest.WriteTree(t, root, map[string]string{
		"1/task/1/wchan": "anon_pipe_write", "1/task/2/wchan": "futex_do_wait", "1/task/3/wchan": "sock_alloc_send_pskb", "1/task/4/wchan": "io_schedule",
		"1/task/5/wchan": "request_wait_answer", "1/task/6/wchan": "some_new_wait", "1/task/6/syscall": fmt.Sprintf("%d 0x1 0x0 0x0 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_FUTEX),
		"1/task/7/wchan": "fuse_dev_do_read", "1/task/8/wchan": "0",
		"1/task/10/wchan": "wait_for_partner", "1/task/10/syscall": fmt.Sprintf("%d 0xffffff9c 0x55 0x80000 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_OPENAT),
		"1/task/11/wchan": "wait_for_partner", "1/task/11/syscall": fmt.Sprintf("%d 0xffffff9c 0x55 0x80001 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_OPENAT),
		"1/task/9/wchan": "0", "1/task/9/syscall": fmt.Sprintf("%d 0xffffff9c 0x55 0x241 0x1b6 0x0 0x20 0x7f 0x7f\n", unix.SYS_OPENAT),
	})
	byID := map[int]thread{
		1: sample('S', 20*time.Second, 0, 0, 0), 2: sample('S', time.Hour, 0, 0, 0), 3: sample('S', time.Second, 0, 0, 0),
		4: sample('D', time.Second, 15*time.Second, 14, 15), 5: sample('S', 12*time.Second, 0, 0, 0),
		6: sample('S', time.Hour, 0, 0, 0), 7: sample('S', time.Hour, 0, 0, 0), 8: sample('S', time.Hour, 0, 0, 0),
		9: sample('D', 0, 0, 1, 1), 10: sample('S', time.Minute, 0, 0, 0), 11: sample('S', 29*time.Second, 0, 0, 0),
	}
	table := proc.NewTable(root)
	place := func(tid int) proc.Place { return table.Place(1, tid) }
	got := blocked(maps.Clone(byID), at, false, place)
	opensFIFO := facts.BlockedThread{TID: 10, Since: at.Add(-time.Minute), Asleep: true, Channel: "wait_for_partner", Syscall: "openat"}
	if len(got) == 0 || got[0] != opensFIFO {
		t.Errorf("a FIFO that nobody writes to, and no container's output: blocked %+v", got)
	}
	got = blocked(byID, at, true, place)
	want := []facts.BlockedThread{
		{TID: 1, Since: at.Add(-20 * time.Second), Asleep: true, Channel: "anon_pipe_write"},
		{TID: 5, Since: at.Add(-12 * time.Second), Asleep: true, Channel: "request_wait_answer"},
		{TID: 4, Since: at.Add(-time.Second), MostlySince: at.Add(-15 * time.Second), Channel: "io_schedule"},
		{TID: 9, Since: at, Syscall: "openat"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("blocked %+v", got)
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
	check.Equal(t, m, mostly{}, "not in D any more")
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
	before := threads{table: proc.NewTable(root)}
	at, id := time.Now(), proc.ID{PID: 1000, Start: 5000}
	look := func(after time.Duration) facts.Process {
		t.Helper()
		v := facts.Process{At: at.Add(after)}
		must.Do(t, before.sample(id, &v, proc.Unread{}))
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
	check.Equal(t, look(7*time.Second).DelayPerRun, 5*time.Millisecond, "each time")
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
	must.Do(t, os.RemoveAll(filepath.Join(root, "1000")))
	process(5001, "containerd", 'S', 4000, cgroup)              // started before it
	process(5002, "containerd", 'S', 90_000, cgroup)            // while it was alive
	process(5003, "containerd", 'S', 100_050, "0::/docker/b\n") // elsewhere
	process(5004, "containerd-shim", 'S', 100_050, cgroup)      // something else
	process(5005, "containerd", 'Z', 100_050, cgroup)           // dead
	process(5009, "containerd", 'S', 100_050, "0::/docker/c\n") // elsewhere, with its arguments
	evidencetest.WriteTree(t, root, map[string]string{"5009/cmdline": "containerd\x00--config\x00/c\x00"})
	namespace(t, root, 5009, "mnt:[8]")
	p.args = []string{"/usr/bin/containerd", "--config", "/c"}
	p.place.mounts = "mnt:[7]"
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
	// One that ends before it is read is a start as well, and one with its arguments in its mounts.
	must.Do(t, os.RemoveAll(filepath.Join(root, "5007")))
	evidencetest.WriteTree(t, root, map[string]string{"5010/stat": evidencetest.StatLine(5010, "containerd", 'S', 1, 100_090), "5010/cgroup": cgroup})
	if v := gatherProcess(t, p); v.Alive || v.RestartsTotal != 2 || len(v.Restarts) != 2 {
		t.Errorf("%+v, want another start, of a process that has ended", v)
	}
	for _, pid := range []string{"5006", "5008", "5010"} {
		must.Do(t, os.RemoveAll(filepath.Join(root, pid)))
	}
	p.args = []string{"/usr/bin/containerd", "--config", "/c"}
	p.place.mounts = "mnt:[8]"
	p.successors.end()
	p.successors = nil // those of the process with other mounts
	if v := gatherProcess(t, p); !v.Alive || v.PID != 5009 || v.RestartsTotal != 3 {
		t.Errorf("%+v, want that with its arguments", v)
	}
}

// TestPlaceUnread: a successor that is not known because its place, or that of the last one, could not be read is said.
func TestPlaceUnread(t *testing.T) {
	for part, file := range map[string]string{"cgroup": "cgroup", "mount namespace": "ns/mnt"} {
		for _, pid := range []string{"1000", "5001"} {
			root := evidencetest.CopyTree(t, "testdata/proc")
			line := evidencetest.StatLine(5001, "containerd", 'S', 1, 100_050)
			evidencetest.WriteTree(t, root, map[string]string{"5001/stat": line, "5001/task/5001/stat": line, "5001/cgroup": "0::/elsewhere\n"})
			must.Do(t, os.RemoveAll(filepath.Join(root, pid, file)))
			evidencetest.WriteTree(t, root, map[string]string{pid + "/" + file + "/directory": ""}) // neither a file nor a link
			p := processOf(root, func() int { return 1000 })
			p.up = func() time.Duration { return 1000 * time.Second }
			gatherProcess(t, p)
			p.unread.Drain()
			must.Do(t, os.RemoveAll(filepath.Join(root, "1000")))
			v := gatherProcess(t, p)
			_, said := p.unread[part]
			p.successors.end()
			if v.Alive || !said {
				t.Errorf("%s of %s: alive %t, unread %v", part, pid, v.Alive, p.unread)
			}
		}
	}
}

// TestSharedCgroup: another runtime in a cgroup that is no unit's does not follow one that has ended.
func TestSharedCgroup(t *testing.T) {
	for cgroup, follows := range map[string]bool{"0::/\n": false, "0::/kubepods/runtimes\n": false, "0::/system.slice/containerd.service\n": true} {
		root := evidencetest.CopyTree(t, "testdata/proc")
		line := evidencetest.StatLine(5001, "containerd", 'S', 1, 100_050)
		evidencetest.WriteTree(t, root, map[string]string{
			"1000/cgroup": cgroup, "5001/stat": line, "5001/task/5001/stat": line, "5001/cgroup": cgroup,
			"5001/cmdline": "containerd\x00--config\x00/another\x00",
		})
		p := processOf(root, func() int { return 1000 })
		p.up = func() time.Duration { return 1000 * time.Second }
		gatherProcess(t, p)
		must.Do(t, os.RemoveAll(filepath.Join(root, "1000")))
		v := gatherProcess(t, p)
		check.Equal(t, v.Alive, follows, "in %q: follows", cgroup)
		p.successors.end()
	}
}

// TestMissedStarts: starts are counted of processes that have ended at the next sample, those that
// were found and, of a unit of systemd, one that was not.
func TestMissedStarts(t *testing.T) {
	const cgroup = "0::/system.slice/containerd.service\n"
	root := evidencetest.CopyTree(t, "testdata/proc")
	evidencetest.WriteTree(t, root, map[string]string{"1000/cgroup": cgroup})
	units := filepath.Join(root, "1/root/run/systemd/units")
	must.Do(t, os.MkdirAll(units, 0o755))
	invoke := func(id string) {
		link := filepath.Join(units, "invocation:containerd.service")
		_ = os.Remove(link) // as systemd does between two starts
		if id != "" {
			must.Do(t, os.Symlink(id, link))
		}
	}
	start := func(pid int) {
		line := evidencetest.StatLine(pid, "containerd", 'S', 1, 100_000+uint64(pid))
		evidencetest.WriteTree(t, root, map[string]string{
			fmt.Sprintf("%d/cgroup", pid): cgroup, fmt.Sprintf("%d/stat", pid): line, fmt.Sprintf("%d/task/%d/stat", pid, pid): line,
		})
	}
	end := func(pid int) { must.Do(t, os.RemoveAll(filepath.Join(root, strconv.Itoa(pid)))) }
	invoke("a")
	p := processOf(root, func() int { return 1000 })
	p.up = func() time.Duration { return 1000 * time.Second }
	gatherProcess(t, p)
	for _, step := range []struct {
		name   string
		change func()
		alive  bool
		want   int // starts since the last step
	}{
		{name: "it ends", change: func() { end(1000); invoke("") }},
		{name: "two that end", change: func() {
			for _, pid := range []int{5001, 5002} {
				start(pid)
				p.successors.look()
				end(pid)
			}
			invoke("c")
		}, want: 2},
		{name: "nothing", change: func() { invoke("") }},
		{name: "one that was not seen", change: func() { invoke("d") }, want: 1},
		{name: "its process, which is seen late", change: func() { start(5003) }, alive: true},
		{name: "it is replaced within the invocation", change: func() { end(5003); start(5004) }, alive: true, want: 1},
		{name: "it is replaced in another one", change: func() { end(5004); invoke("e"); start(5005) }, alive: true, want: 1},
		{name: "one that ends, before one that stays", change: func() {
			end(5005)
			gatherProcess(t, p)
			start(5006)
			p.successors.look()
			end(5006)
			start(5007)
			invoke("f")
		}, alive: true, want: 2},
		{name: "one that was not read when it was found", change: func() {
			end(5007)
			gatherProcess(t, p)
			start(5008)
			p.successors.look()
			p.countMissed(proc.Process{})
		}, alive: true, want: 1},
	} {
		before := p.last.RestartsTotal
		step.change()
		v := gatherProcess(t, p)
		check.Equal(t, v.RestartsTotal-before, step.want, "%s: starts", step.name)
		check.Equal(t, v.Alive, step.alive, "%s: alive", step.name)
	}
	p.successors.end()
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

// TestProcessFDs lowers the limit of a process below the number of its open descriptors.
func TestProcessFDs(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	p := processIn("/proc", cmd.Process.Pid)
	var usedAt time.Time
	for _, limit := range []uint64{64, 2, 64} {
		must.Do(t, unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: 64}, nil))
		v := gatherProcess(t, p)
		if limit == 2 {
			usedAt = v.At
		}
		soon := limit == 2 || len(v.Blocked) > 0 // it may still wait for its program to be read from the disk
		if v.MaxFDs != int(limit) || v.OpenFDs < 3 || v.OpenFDs > 63 || !v.ExhaustedAt.Equal(usedAt) || p.spec.Resample(v) != soon {
			t.Errorf("%d of %d, used up at %s, another sample at the next tick: %t", v.OpenFDs, v.MaxFDs, v.ExhaustedAt, p.spec.Resample(v))
		}
	}
}

// TestFileSize: the largest file that a process has open for writing is read where the size of its files is limited.
func TestFileSize(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	evidencetest.WriteTree(t, root, map[string]string{"1000/fd/.keep": ""})
	files := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(files+"90", make([]byte, 4096), 0o600))
	must.Do(t, os.WriteFile(files+"91", make([]byte, 9999), 0o600))
	for fd, flags := range map[string]string{"90": "0100002", "91": "0100000"} { // for writing, and not
		must.Do(t, os.Symlink(files+fd, filepath.Join(root, "1000/fd", fd)))
		evidencetest.WriteTree(t, root, map[string]string{"1000/fdinfo/" + fd: "pos:\t0\nflags:\t" + flags + "\n"})
	}
	for limit, want := range map[string][2]int{"unlimited": {0, 0}, "1024": {1024, 4096}, "0": {1, 4096}} {
		lines := "Max file size " + limit + " unlimited bytes\nMax open files 64 64 files\n"
		evidencetest.WriteTree(t, root, map[string]string{"1000/limits": lines})
		v := gatherProcess(t, processIn(root, 1000))
		check.Equal(t, [2]int{v.FileSizeMax, v.LargestFile}, want, "limit and largest file, %s", limit)
	}
}

// TestTracer: whether somebody traces the process is read every few seconds, and at once of another process, and
// while somebody does.
func TestTracer(t *testing.T) {
	root := t.TempDir()
	evidencetest.WriteTree(t, root, map[string]string{
		"1000/stat": evidencetest.StatLine(1000, "containerd", 'S', 1, 100),
		"50/stat":   evidencetest.StatLine(50, "strace", 'S', 1, 100), "1001/status": "TracerPid:\t0\n",
	})
	p := processOf(root, func() int { return 1000 })
	at := time.Now()
	for _, tt := range []struct {
		pid    int
		passed time.Duration
		tracer int // by then
		want   int
	}{
		{1000, 0, 50, 50}, {1000, time.Second, 50, 50}, {1001, 2 * time.Second, 50, 0}, {1000, 10 * time.Second, 50, 50},
		{1000, 11 * time.Second, 0, 0}, {1000, 12 * time.Second, 50, 0}, {1000, 17 * time.Second, 50, 50},
	} {
		evidencetest.WriteTree(t, root, map[string]string{"1000/status": fmt.Sprintf("TracerPid:\t%d\n", tt.tracer)})
		v := &facts.Process{PID: tt.pid, At: at.Add(tt.passed)}
		p.readTracer(v)
		if v.TracerPID != tt.want || (v.Tracer == "strace") != (tt.want == 50) {
			t.Errorf("pid %d after %s: traced by %d (%s), want %d", tt.pid, tt.passed, v.TracerPID, v.Tracer, tt.want)
		}
		p.last = v
	}
}
