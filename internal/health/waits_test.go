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
