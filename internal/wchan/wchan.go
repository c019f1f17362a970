// Package wchan classifies the kernel functions in which threads wait, as /proc/PID/wchan names them.
// It holds the one table of their names, and reads no file.
package wchan

import (
	"slices"
	"strings"
)

// Kind is what a thread waits for.
type Kind string

// The kinds of waits.
const (
	Unread    Kind = ""          // the function is not known
	Idle      Kind = "idle"      // work: a request, a timer, a child, another thread
	FIFO      Kind = "fifo"      // the other end of a FIFO to be opened
	Exec      Kind = "exec"      // its child to begin another program
	Exit      Kind = "exit"      // the end of a process, or of deferred work of the kernel
	Freezer   Kind = "freezer"   // to be thawed or continued
	Memory    Kind = "memory"    // memory below the limit of its cgroup
	Reclaim   Kind = "reclaim"   // memory of the node
	Lock      Kind = "lock"      // a file lock
	Lease     Kind = "lease"     // a file lease to be given up
	Agent     Kind = "agent"     // a fanotify listener to permit an access
	Seccomp   Kind = "seccomp"   // the supervisor of a seccomp filter
	Fault     Kind = "fault"     // the process that supplies the pages of its memory
	Receiver  Kind = "receiver"  // the receiver of datagrams
	Thaw      Kind = "thaw"      // a file system to be thawed
	Semaphore Kind = "semaphore" // a lock that many parts of the kernel share, frozen file systems among them
	Storage   Kind = "storage"   // a disk, a file system or the server of one
	Other     Kind = "other"     // none of these
)

// Class is a kind of wait, and the types of the file systems whose server is waited for, if any.
type Class struct {
	Kind        Kind
	FileSystems []string

	prefixes []string // of the functions' names
}

// Refrigerator is the function of some threads in a freezer of cgroup v1; since Linux 6.1 others stay where they were.
const Refrigerator = "__refrigerator"

// classes are the known functions, of which a new kernel may add some. The first match decides:
// servers of FUSE wait in fuse_dev_do_read.
var classes = []Class{
	{Kind: Freezer, prefixes: []string{
		Refrigerator, "do_freezer_trap", "do_signal_stop", "cgroup_enter_frozen", "cgroup_leave_frozen",
	}},
	{Kind: FIFO, prefixes: []string{"wait_for_partner", "fifo_open"}},
	{Kind: Exec, prefixes: []string{"wait_for_vfork_done", "kernel_clone"}},
	{Kind: Idle, prefixes: []string{
		"futex_", "ep_poll", "do_epoll_wait", "poll_schedule_timeout", "do_poll", "do_select", "do_sys_poll",
		"hrtimer_nanosleep", "do_nanosleep", "common_nsleep", "clock_nanosleep", "schedule_timeout", "schedule_hrtimeout",
		"do_wait", "kernel_wait4", "kernel_waitid", "inet_csk_accept", "inet_csk_wait", "unix_accept",
		"__skb_wait_for_more_packets", "unix_stream_data_wait", "unix_stream_read_generic", "sk_wait_data", "wait_woken",
		"tcp_recvmsg", "tcp_data_wait", "pipe_read", "anon_pipe_read", "fifo_pipe_read", "pipe_wait_readable",
		"do_sigtimedwait", "sigsuspend", "do_sigsuspend", "do_pause", "__x64_sys_pause", "__arm64_sys_pause",
		"signalfd_", "eventfd_read", "timerfd_read", "inotify_read", "fanotify_read", "fuse_dev_", "io_cqring_wait",
		"io_wq_worker", "io_sq_thread", "read_events", "do_msgrcv", "do_semtimedop", "wq_sleep", "n_tty_read", "do_syslog",
		"syslog_print", "devkmsg_read", "perf_", "vhost_", "ptrace_stop",
	}},
	{Kind: Agent, prefixes: []string{"fanotify_handle_event", "fanotify_get_response"}},
	{Kind: Seccomp, prefixes: []string{"seccomp_do_user_notification"}},
	{Kind: Fault, prefixes: []string{"handle_userfault"}},
	{Kind: Receiver, prefixes: []string{"unix_wait_for_peer"}},
	{Kind: Lease, prefixes: []string{"__break_lease"}},
	{Kind: Lock, prefixes: []string{"locks_lock_", "flock_", "posix_lock_", "fcntl_", "do_lock_file_wait"}},
	{Kind: Memory, prefixes: []string{
		"mem_cgroup_", "__mem_cgroup_", "memory_high_", "try_charge", "obj_cgroup_charge", "try_to_free_mem_cgroup",
	}},
	{Kind: Reclaim, prefixes: []string{
		"do_try_to_free_pages", "shrink_", "reclaim_throttle", "throttle_direct_reclaim", "congestion_wait",
	}},
	{Kind: Exit, prefixes: []string{
		"__flush_work", "do_exit", "do_group_exit", "exit_", "zap_", "coredump_", "__synchronize_srcu", "synchronize_",
	}},
	{Kind: Thaw, prefixes: []string{"__sb_start_write", "sb_start_write", "freeze_super", "sb_wait_write"}},
	{Kind: Semaphore, prefixes: []string{"percpu_rwsem_wait"}},
	{Kind: Storage, FileSystems: []string{"fuse"}, prefixes: []string{"request_wait_answer", "fuse_"}},
	{Kind: Storage, FileSystems: []string{"nfs"}, prefixes: []string{"rpc_", "nfs_", "nfs4_"}},
	{Kind: Storage, FileSystems: []string{"cifs", "smb3"}, prefixes: []string{"wait_for_response", "cifs_", "smb2_"}},
	{Kind: Storage, FileSystems: []string{"ceph"}, prefixes: []string{"ceph_"}},
	{Kind: Storage, FileSystems: []string{"autofs"}, prefixes: []string{"autofs_"}},
	{Kind: Storage, FileSystems: []string{"9p"}, prefixes: []string{"p9_", "v9fs_"}},
	{Kind: Storage, prefixes: []string{
		"io_schedule", "bit_wait_io", "wait_on_page_", "__wait_on_page_", "folio_wait_", "__folio_lock", "wait_on_buffer",
		"__wait_on_buffer", "wait_on_commit", "wait_on_inode", "inode_wait_for_writeback", "__inode_wait_for_writeback",
		"wb_wait_for_completion", "sync_inodes_sb", "balance_dirty_pages", "inode_dio_wait",
		"blk_", "__blk_", "rq_qos_wait", "wbt_wait", "submit_bio_wait", "blkdev_", "bio_", "dm_", "md_", "raid5_",
		"loop_", "nvme_", "scsi_", "sd_", "jbd2_", "__jbd2_", "start_this_handle", "add_transaction_credits",
		"wait_transaction_", "do_get_write_access", "ext4_", "xfs_", "xlog_", "btrfs_", "wait_current_trans", "f2fs_",
		"gfs2_", "ocfs2_", "ovl_", "rbd_", "afs_", "do_umount", "deactivate_super", "mnt_want_write",
	}},
}

// Of classifies a kernel function. The kernel shows a denied one as "0".
func Of(function string) Class {
	if function == "" || function == "0" {
		return Class{}
	}
	i := slices.IndexFunc(classes, func(c Class) bool { return hasPrefix(function, c.prefixes) })
	if i < 0 {
		return Class{Kind: Other}
	}
	return classes[i]
}

// IsIdle reports whether a thread that sleeps in a function waits for work, as most threads do.
// True where the function is not known.
func IsIdle(function string) bool {
	return slices.Contains([]Kind{Unread, Idle, Freezer}, Of(function).Kind)
}

// IsOf reports whether a file system is one of those whose server a class of threads waits for.
func (c Class) IsOf(fileSystem string) bool { return hasPrefix(fileSystem, c.FileSystems) }

// HasServer reports whether a file system is served by another process or node.
func HasServer(fileSystem string) bool {
	return slices.ContainsFunc(classes, func(c Class) bool { return c.IsOf(fileSystem) })
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
