package health

import (
	"fmt"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/wchan"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// serving is the process of a runtime, looked at some time ago.
func serving(looked time.Duration) *facts.Process {
	return &facts.Process{At: ago(looked), PID: 1, Alive: true, Start: ago(time.Hour), OpenFDs: 20, MaxFDs: 1024}
}

// waits is a fresh dial that was connected so long ago and has had no answer.
func waits(d time.Duration) facts.Probe {
	return facts.Probe{At: ago(d), FailedSince: ago(d), Stage: facts.StageSettings, Cause: facts.CauseTimeout, Failures: 1}
}

// holds is an accept queue that holds one connection, which has waited so long.
func holds(looked, waits time.Duration) *facts.Queue {
	return &facts.Queue{At: ago(looked), Listening: true, Length: 1, Limit: 128, WaitingSince: ago(waits)}
}

// TestStarvedWhileAccepting: a runtime that gets no CPU accepts late, whether its
// lists are slow yet or not.
func TestStarvedWhileAccepting(t *testing.T) {
	f := answering()
	p := serving(0)
	p.Delay, p.CPU, p.DelayPerRun = 1.9, .05, 300*time.Millisecond
	f.Evidence.Process, f.Evidence.Cgroup, f.Evidence.Queue = p, &facts.Cgroup{At: t0}, holds(0, 3*time.Second)
	named(t, "judged", &f, RuntimeStarved)
	f.Woke = ago(3 * time.Second)
	if v := Judge(&f, t0, nil); v.Reason == RuntimeStarved {
		t.Errorf("the pause counts as a wait for a CPU: %v", v.Active)
	}
	f.Woke = ago(time.Minute)
	named(t, "a minute after a pause", &f, RuntimeStarved)
	f.Woke, p.Delay = time.Time{}, 0
	named(t, "with a CPU", &f, AcceptStalled)
	// What the process shows is of before the dial ran into its time limit.
	f.Probe, p.At = waits(1200*time.Millisecond), ago(800*time.Millisecond)
	if v := Judge(&f, t0, nil); v.Reason == AcceptStalled {
		t.Errorf("it may get no CPU: %v", v.Active)
	}
}

// judgedAs judges a node that answers, changed by a function.
func judgedAs(t *testing.T, name, want string, change func(*facts.Facts)) {
	t.Helper()
	f := answering()
	change(&f)
	named(t, name, &f, want)
}

// TestAcceptsLate: samples of a fault that has ended do not make AcceptStalled.
func TestAcceptsLate(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for stopped, want := range map[time.Duration]string{50 * ms: "", 900 * ms: "", 1100 * ms: AcceptStalled} {
		// Neither process nor queue have been looked at again when the first list is answered.
		judgedAs(t, fmt.Sprintf("stopped briefly, %s ago", stopped), want, func(f *facts.Facts) {
			f.Calls = map[string]facts.Call{"list_containers": {LastOK: ago(10 * ms), LastOKDuration: 1200 * ms}}
			f.Probe, f.Evidence.Queue, f.Evidence.Process = waits(1200*ms), holds(50*ms, 1200*ms), serving(50*ms)
			f.Evidence.Process.StoppedAt, f.Evidence.Process.Threads = ago(stopped), map[string]int{"T": 9}
			if stopped > s {
				f.Evidence.Process.Threads = map[string]int{"S": 9}
			}
		})
	}
	for _, phase := range []facts.Phase{facts.PhaseListContainers, facts.PhaseInspect} {
		for held, want := range map[time.Duration]string{4 * s: "", 20 * ms: AcceptStalled} {
			judgedAs(t, fmt.Sprintf("thawed, %s, the list before it took %s", phase, held), want, func(f *facts.Facts) {
				answered := ago(ms)
				f.Calls = map[string]facts.Call{"list_podsandbox": {LastOK: answered, LastOKDuration: held}}
				f.Relist.InFlight = &facts.InFlight{Start: answered.Add(-held), Phase: phase, PhaseStart: answered}
				f.Probe, f.Evidence.Queue, f.Evidence.Process = waits(4500*ms), holds(100*ms, 4*s), serving(100*ms)
			})
		}
	}
}

// TestHalfSeen: the first and the last samples of a fault do not name another one.
func TestHalfSeen(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for looked, want := range map[time.Duration]string{400 * ms: "", 50 * ms: RuntimeNotReady} {
		judgedAs(t, fmt.Sprintf("Status fails, descriptors counted %s ago", looked), want, func(f *facts.Facts) {
			f.Calls = map[string]facts.Call{opStatus: {LastFailed: ago(100 * ms)}, "list_containers": {LastOK: ago(20 * ms)}}
			f.Status.LastErr = &facts.CallError{Operation: opStatus, Code: "Unknown", Message: "open /var/lib/containerd/uuid: too many open files: unknown"}
			f.Evidence.Process = serving(looked)
		})
	}
	for age, want := range map[time.Duration]string{9 * s: RuntimeStarting, time.Minute: RuntimeUnresponsive} {
		judgedAs(t, fmt.Sprintf("accepts and has not answered, started %s ago", age), want, func(f *facts.Facts) {
			failing(f, 6, "Unavailable")
			f.Relist.InFlight = &facts.InFlight{Start: ago(3 * s), Phase: facts.PhaseListPodSandbox, PhaseStart: ago(3 * s)}
			f.Status.LastGood = ago(age + s)
			f.Calls = map[string]facts.Call{"list_podsandbox": {LastOK: ago(age + s)}, "version": {LastOK: ago(age + s), InFlightSince: ago(3 * s)}}
			f.Evidence.Process, f.Evidence.Queue = serving(0), &facts.Queue{At: t0, Listening: true, Limit: 128}
			f.Evidence.Process.Start = ago(age)
		})
	}
	for took, want := range map[time.Duration]string{7 * s: "", 20 * ms: NodeStatusStalled} {
		judgedAs(t, fmt.Sprintf("Version is the last to be answered, the list took %s", took), want, func(f *facts.Facts) {
			f.Calls = map[string]facts.Call{string(facts.PhaseListContainers): {LastOK: ago(10 * ms), LastOKDuration: took}}
			f.Relist.Lists, f.Version = append(f.Relist.Lists, took), facts.VersionCheck{HangsSince: ago(6800 * ms)}
		})
	}
}

func TestWaitOf(t *testing.T) {
	for channel, want := range map[string]wchan.Kind{
		"": wchan.Unread, wchan.Refrigerator: wchan.Freezer,
		"mem_cgroup_oom_synchronize": wchan.Memory, "mem_cgroup_handle_over_high": wchan.Memory, "__mem_cgroup_handle_over_high": wchan.Memory,
		"__flush_work": wchan.Exit, "do_exit": wchan.Exit, "exit_mm": wchan.Exit,
		"io_schedule": wchan.Storage, "jbd2_log_wait_commit": wchan.Storage, "wait_on_page_bit_common": wchan.Storage, "folio_wait_bit_common": wchan.Storage,
		"rpc_wait_bit_killable": wchan.Storage, "fuse_wait_on_page_writeback": wchan.Storage, "request_wait_answer": wchan.Storage, "do_umount": wchan.Storage,
		"percpu_rwsem_wait": wchan.Other, "cgroup_lock_and_drain_offline": wchan.Other, "hrtimer_nanosleep": wchan.Other,
	} {
		check.Equal(t, waitOf(&facts.BlockedThread{Channel: channel}), want, "%q", channel)
	}
	// A lock that many parts of the kernel share: what the call is about tells.
	check.Equal(t, waitOf(&facts.BlockedThread{Channel: "percpu_rwsem_wait", Syscall: "openat"}), wchan.Storage, "a frozen file system")
	// A page fault of the memory limit's is no matter of the call that it is in.
	check.Equal(t, waitOf(&facts.BlockedThread{Channel: "mem_cgroup_handle_over_high", Syscall: "read"}), wchan.Memory, "a memory limit")
}

// waitingIn is a runtime whose lists are slow, with a thread in a wait channel.
func waitingIn(channel string) facts.Facts {
	f := healthyFacts(t0)
	f.Relist.Lists = []time.Duration{2 * time.Second}
	f.Evidence.Process = &facts.Process{
		At: t0, PID: 812, Comm: "containerd", Alive: true, Threads: map[string]int{"D": 1},
		Blocked: []facts.BlockedThread{{TID: 813, Since: t0.Add(-time.Second), Channel: channel}},
	}
	return f
}

// TestOutOfMemoryBelowTheLimit: tasks that are out of memory wait on while the usage is
// below the limit again; beside containerd 1.7.24 it was at 89 % for 18 s.
func TestOutOfMemoryBelowTheLimit(t *testing.T) {
	f := waitingIn("mem_cgroup_oom_synchronize")
	f.Evidence.Cgroup = &facts.Cgroup{At: t0, MemoryLimits: []facts.MemoryLimit{{Path: "/runtime.slice", Usage: 1847296, Max: 2064384, OOM: true}}}
	named(t, "judged", &f, RuntimeMemoryLimited)
}

// TestMemoryLimitKeepsItsName: while the usage stands at the limit and calls suffer,
// not every sample meets a thread that waits for memory.
func TestMemoryLimitKeepsItsName(t *testing.T) {
	f := waitingIn("mem_cgroup_handle_over_high")
	f.Evidence.Cgroup = &facts.Cgroup{At: t0, MemoryLimits: []facts.MemoryLimit{{Path: "/runtime.slice", Usage: 60 << 20, High: 4 << 20}}}
	v := Judge(&f, t0, nil)
	must.Equal(t, v.Reason, RuntimeMemoryLimited, "%v", v.Active)
	f.Evidence.Process.Blocked = nil
	if v = Judge(&f, t0, v); v.Reason != RuntimeMemoryLimited {
		t.Errorf("no thread waits in this sample: %q: %v", v.Reason, v.Active)
	}
	f.Evidence.Cgroup = &facts.Cgroup{
		At: t0, MemoryLimits: []facts.MemoryLimit{{Path: "/runtime.slice", Usage: 3600 << 10, High: 4 << 20, HighEvents: 30}},
		Pressure: &facts.CgroupPressure{CPUSome: -1, MemoryFull: 39, IOSome: -1},
	}
	if v = Judge(&f, t0, v); v.Reason != RuntimeMemoryLimited {
		t.Errorf("the kernel has just taken a tenth back: %q: %v", v.Reason, v.Active)
	}
	f.Relist.Lists = []time.Duration{10 * time.Millisecond}
	if v = Judge(&f, t0, v); v.Reason != RuntimeMemoryLimited {
		t.Errorf("a list was answered in between: %q: %v", v.Reason, v.Active)
	}
	named(t, "a limit that is met while lists are answered", &f, "")
	f.Evidence.Cgroup.MemoryLimits[0].High = 0
	if v = Judge(&f, t0.Add(holdFor), v); v.Reason == RuntimeMemoryLimited {
		t.Error("the limit is lifted")
	}
}

// TestThreadStuck is of pairs: the same wait in a pipe that nobody reads and in an idle
// channel's place, in D and asleep, for long and for a moment.
func TestThreadStuck(t *testing.T) {
	for name, tt := range map[string]struct {
		thread facts.BlockedThread
		want   string
	}{
		"a pipe that nobody reads":          {facts.BlockedThread{Since: ago(12 * time.Second), Asleep: true, Channel: "anon_pipe_write", Syscall: "write"}, RuntimeThreadStuck},
		"for a moment":                      {facts.BlockedThread{Since: ago(8 * time.Second), Asleep: true, Channel: "anon_pipe_write", Syscall: "write"}, ""},
		"journald does not read":            {facts.BlockedThread{Since: ago(12 * time.Second), Asleep: true, Channel: "sock_alloc_send_pskb"}, RuntimeThreadStuck},
		"a FUSE request, not yet in D":      {facts.BlockedThread{Since: ago(12 * time.Second), Asleep: true, Channel: "request_wait_answer", Syscall: "openat"}, RuntimeStorageStall},
		"a fanotify agent":                  {facts.BlockedThread{Since: ago(12 * time.Second), Channel: "fanotify_handle_event", Syscall: "openat"}, RuntimeStorageStall},
		"a throttled disk":                  {facts.BlockedThread{Since: ago(time.Second), MostlySince: ago(14 * time.Second), Channel: "io_schedule"}, RuntimeStorageStall},
		"a disk that is busy for a moment":  {facts.BlockedThread{Since: ago(time.Second), MostlySince: ago(5 * time.Second), Channel: "io_schedule"}, ""},
		"a lock in the kernel":              {facts.BlockedThread{Since: ago(12 * time.Second), Channel: "cgroup_lock_and_drain_offline"}, RuntimeThreadStuck},
		"a file lock has a row of its own":  {facts.BlockedThread{Since: ago(12 * time.Second), Asleep: true, Channel: "locks_lock_inode_wait"}, ""},
		"a process that ends":               {facts.BlockedThread{Since: ago(12 * time.Second), Channel: "do_exit"}, ""},
		"where it waits cannot be read (D)": {facts.BlockedThread{Since: ago(12 * time.Second)}, ""},
	} {
		f := healthyFacts(t0)
		tt.thread.TID = 813
		f.Evidence.Process = &facts.Process{At: t0, PID: 812, Comm: "containerd", Alive: true, Threads: map[string]int{"S": 9}, Blocked: []facts.BlockedThread{tt.thread}}
		named(t, name, &f, tt.want)
	}
}
