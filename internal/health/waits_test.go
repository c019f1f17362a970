package health

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
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
		check.Equal(t, waitOf(&facts.BlockedThread{Channel: channel}), want, "%q", channel)
	}
	// A lock that many parts of the kernel share: what the call is about tells.
	check.Equal(t, waitOf(&facts.BlockedThread{Channel: "percpu_rwsem_wait", Syscall: "openat"}), waitStorage, "a frozen file system")
	// A page fault of the memory limit's is no matter of the call that it is in.
	check.Equal(t, waitOf(&facts.BlockedThread{Channel: "mem_cgroup_handle_over_high", Syscall: "read"}), waitMemory, "a memory limit")
}

// TestSeverityBeside: a thread that waits for the disk is a warning while relists
// succeed, and critical from when they suffer; it is one and the same reason.
func TestSeverityBeside(t *testing.T) {
	f := healthyFacts(t0)
	f.Evidence.Process = &facts.Process{
		At: t0, PID: 812, Comm: "containerd", Alive: true, Threads: map[string]int{"D": 1},
		Blocked: []facts.BlockedThread{{TID: 813, Since: t0.Add(-12 * time.Second), Channel: "jbd2_log_wait_commit"}},
	}
	v := Judge(&f, t0, nil)
	if a := v.ActiveReason(RuntimeStorageStall); a == nil || a.Severity != facts.SeverityWarning || v.State != facts.StateDegraded {
		t.Fatalf("lists answered: %s %+v", v.State, v.Active)
	}
	later := t0.Add(2 * time.Second)
	f.Relist.Lists = []time.Duration{2 * time.Second}
	v = Judge(&f, later, v)
	if a := v.ActiveReason(RuntimeStorageStall); a == nil || a.Severity != facts.SeverityCritical || !a.Since.Equal(t0) {
		t.Errorf("lists slow: %+v", v.Active)
	}
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
