package health

import (
	"testing"
	"time"
)

func TestWaitOf(t *testing.T) {
	for channel, want := range map[string]wait{
		"": waitUnread, refrigerator: waitFreezer,
		"mem_cgroup_oom_synchronize": waitMemory, "mem_cgroup_handle_over_high": waitMemory, "__mem_cgroup_handle_over_high": waitMemory,
		"__flush_work": waitExit, "do_exit": waitExit, "exit_mm": waitExit,
		"io_schedule": waitStorage, "jbd2_log_wait_commit": waitStorage, "wait_on_page_bit_common": waitStorage, "folio_wait_bit_common": waitStorage,
		"rpc_wait_bit_killable": waitStorage, "fuse_wait_on_page_writeback": waitStorage, "request_wait_answer": waitStorage, "do_umount": waitStorage,
		"percpu_rwsem_wait": waitOther, "cgroup_lock_and_drain_offline": waitOther, "hrtimer_nanosleep": waitOther,
	} {
		if got := waitOf(&BlockedThread{Channel: channel}); got != want {
			t.Errorf("%q: %s, want %s", channel, got, want)
		}
	}
	// A lock that many parts of the kernel share: what the call is about tells.
	if got := waitOf(&BlockedThread{Channel: "percpu_rwsem_wait", Syscall: "openat"}); got != waitStorage {
		t.Errorf("a frozen file system: %s", got)
	}
	// A page fault of the memory limit's is no matter of the call that it is in.
	if got := waitOf(&BlockedThread{Channel: "mem_cgroup_handle_over_high", Syscall: "read"}); got != waitMemory {
		t.Errorf("a memory limit: %s", got)
	}
}

// TestSeverityBeside: a thread that waits for the disk is a warning while relists
// succeed, and critical from when they suffer; it is one and the same reason.
func TestSeverityBeside(t *testing.T) {
	f := healthyFacts(t0)
	f.Evidence.Process = &Process{
		At: t0, PID: 812, Comm: "containerd", Alive: true, Threads: map[string]int{"D": 1},
		Blocked: []BlockedThread{{TID: 813, Since: t0.Add(-12 * time.Second), Channel: "jbd2_log_wait_commit"}},
	}
	v := Judge(&f, t0, nil)
	if a := v.active(RuntimeStorageStall); a == nil || a.Severity != SeverityWarning || v.State != StateDegraded {
		t.Fatalf("lists answered: %s %+v", v.State, v.Active)
	}
	later := t0.Add(2 * time.Second)
	f.Relist.Lists = []time.Duration{2 * time.Second}
	v = Judge(&f, later, v)
	if a := v.active(RuntimeStorageStall); a == nil || a.Severity != SeverityCritical || !a.Since.Equal(t0) {
		t.Errorf("lists slow: %+v", v.Active)
	}
}

// waitingIn is a runtime whose lists are slow, with a thread in a wait channel.
func waitingIn(channel string) Facts {
	f := healthyFacts(t0)
	f.Relist.Lists = []time.Duration{2 * time.Second}
	f.Evidence.Process = &Process{
		At: t0, PID: 812, Comm: "containerd", Alive: true, Threads: map[string]int{"D": 1},
		Blocked: []BlockedThread{{TID: 813, Since: t0.Add(-time.Second), Channel: channel}},
	}
	return f
}

// TestOutOfMemoryBelowTheLimit: tasks that are out of memory wait on while the usage is
// below the limit again; beside containerd 1.7.24 it was at 89 % for 18 s.
func TestOutOfMemoryBelowTheLimit(t *testing.T) {
	f := waitingIn("mem_cgroup_oom_synchronize")
	f.Evidence.Cgroup = &Cgroup{At: t0, MemoryLimits: []MemoryLimit{{Path: "/runtime.slice", Usage: 1847296, Max: 2064384, OOM: true}}}
	named(t, "judged", &f, RuntimeMemoryLimited)
}

// TestMemoryLimitKeepsItsName: while the usage stands at the limit and calls suffer,
// not every sample meets a thread that waits for memory.
func TestMemoryLimitKeepsItsName(t *testing.T) {
	f := waitingIn("mem_cgroup_handle_over_high")
	f.Evidence.Cgroup = &Cgroup{At: t0, MemoryLimits: []MemoryLimit{{Path: "/runtime.slice", Usage: 60 << 20, High: 4 << 20}}}
	v := Judge(&f, t0, nil)
	if v.Reason != RuntimeMemoryLimited {
		t.Fatalf("%q: %v", v.Reason, v.Active)
	}
	f.Evidence.Process.Blocked = nil
	if v = Judge(&f, t0, v); v.Reason != RuntimeMemoryLimited {
		t.Errorf("no thread waits in this sample: %q: %v", v.Reason, v.Active)
	}
	f.Evidence.Cgroup = &Cgroup{
		At: t0, MemoryLimits: []MemoryLimit{{Path: "/runtime.slice", Usage: 3600 << 10, High: 4 << 20, HighEvents: 30}},
		Pressure: &CgroupPressure{CPUSome: -1, MemoryFull: 39, IOSome: -1},
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
		thread BlockedThread
		want   string
	}{
		"a pipe that nobody reads":          {BlockedThread{Since: ago(12 * time.Second), Asleep: true, Channel: "anon_pipe_write", Syscall: "write"}, RuntimeThreadStuck},
		"for a moment":                      {BlockedThread{Since: ago(8 * time.Second), Asleep: true, Channel: "anon_pipe_write", Syscall: "write"}, ""},
		"journald does not read":            {BlockedThread{Since: ago(12 * time.Second), Asleep: true, Channel: "sock_alloc_send_pskb"}, RuntimeThreadStuck},
		"a FUSE request, not yet in D":      {BlockedThread{Since: ago(12 * time.Second), Asleep: true, Channel: "request_wait_answer", Syscall: "openat"}, RuntimeStorageStall},
		"a fanotify agent":                  {BlockedThread{Since: ago(12 * time.Second), Channel: "fanotify_handle_event", Syscall: "openat"}, RuntimeStorageStall},
		"a throttled disk":                  {BlockedThread{Since: ago(time.Second), MostlySince: ago(14 * time.Second), Channel: "io_schedule"}, RuntimeStorageStall},
		"a disk that is busy for a moment":  {BlockedThread{Since: ago(time.Second), MostlySince: ago(5 * time.Second), Channel: "io_schedule"}, ""},
		"a lock in the kernel":              {BlockedThread{Since: ago(12 * time.Second), Channel: "cgroup_lock_and_drain_offline"}, RuntimeThreadStuck},
		"a file lock has a row of its own":  {BlockedThread{Since: ago(12 * time.Second), Asleep: true, Channel: "locks_lock_inode_wait"}, ""},
		"a process that ends":               {BlockedThread{Since: ago(12 * time.Second), Channel: "do_exit"}, ""},
		"where it waits cannot be read (D)": {BlockedThread{Since: ago(12 * time.Second)}, ""},
	} {
		f := healthyFacts(t0)
		tt.thread.TID = 813
		f.Evidence.Process = &Process{At: t0, PID: 812, Comm: "containerd", Alive: true, Threads: map[string]int{"S": 9}, Blocked: []BlockedThread{tt.thread}}
		named(t, name, &f, tt.want)
	}
}
