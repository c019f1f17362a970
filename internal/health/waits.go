package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// wait is what a thread in D waits for.
type wait string

const (
	waitStorage wait = "storage"
	waitMemory  wait = "memory"
	waitExit    wait = "exit"
	waitFreezer wait = "freezer"
	waitLock    wait = "lock"
	// waitOther is a wait channel that says none of these, waitUnread one that cannot be read.
	waitOther  wait = "other"
	waitUnread wait = "unread"
)

// refrigerator is the wait channel of some threads in a v1 freezer; since Linux 6.1 others stay where they were.
const refrigerator = "__refrigerator"

// waitChannels are the kernel functions of the waits, the more precise first; "*" stands for any end.
var waitChannels = []struct {
	wait  wait
	names []string
}{
	{waitFreezer, []string{refrigerator, "do_freezer_trap", "do_signal_stop", "cgroup_enter_frozen",
		"cgroup_leave_frozen"}},
	{waitMemory, []string{
		"mem_cgroup_*", "__mem_cgroup_*", "memory_high_*", "try_charge*", "obj_cgroup_charge*",
		"try_to_free_mem_cgroup_pages", "do_try_to_free_pages",
		"shrink_*", "reclaim_throttle", "throttle_direct_reclaim", "congestion_wait",
	}},
	{waitExit, []string{"__flush_work", "do_exit", "do_group_exit", "exit_*", "zap_*", "coredump_*",
		"wait_for_vfork_done", "kernel_clone", "__synchronize_srcu", "synchronize_rcu*"}},
	{waitLock, []string{"locks_lock_*", "flock_*", "posix_lock_*", "fcntl_*", "do_lock_file_wait"}},
	{waitStorage, []string{
		"fanotify_handle_event", "fanotify_get_response", "io_schedule*", "bit_wait_io", "wait_on_page_*",
		"__wait_on_page_*", "folio_wait_*", "__folio_lock*", "wait_on_buffer", "__wait_on_buffer",
		"wait_on_commit", "wait_on_inode*", "inode_wait_for_writeback", "__inode_wait_for_writeback",
		"wb_wait_for_completion", "sync_inodes_sb", "balance_dirty_pages*", "inode_dio_wait*",
		"blk_*", "__blk_*", "rq_qos_wait", "wbt_wait", "submit_bio_wait", "blkdev_*", "bio_*", "dm_*", "md_*", "raid5_*",
		"loop_*", "nvme_*", "scsi_*", "sd_*",
		"jbd2_*", "__jbd2_*", "start_this_handle", "add_transaction_credits", "wait_transaction_*", "do_get_write_access",
		"ext4_*", "xfs_*", "xlog_*", "btrfs_*", "wait_current_trans", "f2fs_*", "gfs2_*", "ocfs2_*", "ovl_*",
		"nfs_*", "nfs4_*", "rpc_*", "cifs_*", "smb2_*", "wait_for_response", "ceph_*", "rbd_*", "p9_*", "v9fs_*", "afs_*",
		"autofs_*",
		"fuse_*", "request_wait_answer", "do_umount", "deactivate_super", "freeze_super", "sb_wait_write",
		"__sb_start_write", "mnt_want_write*",
	}},
}

// waitOf classifies a thread in D: by its system call where many subsystems share the kernel's lock.
func waitOf(t *facts.BlockedThread) wait {
	if t.Channel == "" {
		return waitUnread
	}
	for _, class := range waitChannels {
		if slices.ContainsFunc(class.names, func(name string) bool { return matches(name, t.Channel) }) {
			return class.wait
		}
	}
	if t.Syscall != "" && !t.Asleep { // a name is known only of calls on files and mounts
		return waitStorage
	}
	return waitOther
}

func matches(pattern, channel string) bool {
	prefix, family := strings.CutSuffix(pattern, "*")
	return channel == pattern || family && strings.HasPrefix(channel, prefix)
}

// blockedIn returns the threads that have been in D for a time, and wait for that; longest first.
func (s *signals) blockedIn(what wait, limit time.Duration) (out []facts.BlockedThread) {
	for _, t := range s.process.Blocked {
		if s.process.Alive && waitOf(&t) == what && (s.age(t.Since) >= limit || s.mostlyFor(&t) >= whileServing) {
			out = append(out, t)
		}
	}
	return out
}

// mostlyFor is how long a thread has been in D in most samples, 0 for one that has not run.
func (s *signals) mostlyFor(t *facts.BlockedThread) time.Duration {
	if t.MostlySince.IsZero() {
		return 0
	}
	return s.age(t.MostlySince)
}

// blockedText states which threads are in D, for how long and in which channel; "" for none.
func (s *signals) blockedText(threads []facts.BlockedThread) string {
	if len(threads) == 0 {
		return ""
	}
	first := threads[0]
	who := fmt.Sprintf("thread %d", first.TID)
	if n := len(threads); n > 1 {
		who = fmt.Sprintf("%d threads, thread %d longest,", n, first.TID)
	}
	channel := channelText(&first)
	mostly := s.mostlyFor(&first)
	switch {
	case first.Asleep:
		return fmt.Sprintf("%s asleep for %s without having run, %s", who, s.ago(first.Since), channel)
	case mostly > 0:
		return fmt.Sprintf("%s in D for most of the last %s, %s", who, facts.Seconds(mostly), channel)
	}
	return fmt.Sprintf("%s in D for %s without having run, %s", who, s.ago(first.Since), channel)
}

// channelText states in which channel and system call a thread waits.
func channelText(t *facts.BlockedThread) string {
	switch {
	case t.Channel == "":
		return "wait channel not readable"
	case t.Syscall == "":
		return "waiting in " + t.Channel
	}
	return "waiting in " + t.Channel + " (" + t.Syscall + ")"
}

// freezerHoldsThreads reports whether a freezer of v1 may hold the threads in D, or did when they were read.
func (s *signals) freezerHoldsThreads() bool {
	inFreezer := func(t facts.BlockedThread) bool { return t.Channel == refrigerator }
	return slices.ContainsFunc(s.process.Blocked, inFreezer) || s.cgroup.Frozen ||
		s.process.At.Sub(s.cgroup.FrozenAt) <= frozenUnseen
}
