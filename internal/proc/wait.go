package proc

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Syscall is a /proc/PID/syscall: the system call in which a thread waits.
type Syscall struct {
	Number int // -1 where it is not known
	Args   [3]uint64
	// File is the name of a call on a file or mount, Idle that of one in which a thread
	// waits for work; "" for any other. Reads are of the first kind.
	File, Idle string
}

// ParseSyscall decodes a /proc/PID/syscall: there is no call of a running thread, nor of one
// that waits in the kernel without a system call ("-1 ...", as in a page fault).
func ParseSyscall(line []byte) (s Syscall) {
	n, _ := fmt.Sscanf(string(line), "%d 0x%x 0x%x 0x%x", &s.Number, &s.Args[0], &s.Args[1], &s.Args[2])
	if n < 4 || s.Number < 0 {
		return Syscall{Number: -1}
	}
	s.File = fileCalls[s.Number]
	s.Idle = idleCalls[s.Number]
	return s
}

// FD returns the first argument where it may be a descriptor; -1 for AT_FDCWD or a pointer.
func (s Syscall) FD() int {
	if s.Args[0] > math.MaxInt32 {
		return -1
	}
	return int(s.Args[0]) //nolint:gosec // at most 31 bits
}

// idleCalls are the system calls in which a thread waits for work.
var idleCalls = map[int]string{
	unix.SYS_FUTEX: "futex", unix.SYS_EPOLL_PWAIT: "epoll_pwait", unix.SYS_EPOLL_PWAIT2: "epoll_pwait2",
	unix.SYS_PPOLL: "ppoll", unix.SYS_PSELECT6: "pselect6", unix.SYS_NANOSLEEP: "nanosleep",
	unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep", unix.SYS_ACCEPT: "accept", unix.SYS_ACCEPT4: "accept4",
	unix.SYS_RT_SIGTIMEDWAIT: "rt_sigtimedwait", unix.SYS_RT_SIGSUSPEND: "rt_sigsuspend",
	unix.SYS_RESTART_SYSCALL: "restart_syscall", unix.SYS_WAITID: "waitid", unix.SYS_WAIT4: "wait4",
}

// fileCalls are system calls on files and mounts. The first argument is a descriptor, of
// the directory that a path is relative to for some, or a path in the process's memory.
var fileCalls = map[int]string{
	unix.SYS_READ: "read", unix.SYS_READV: "readv", unix.SYS_PREAD64: "pread64", unix.SYS_WRITE: "write",
	unix.SYS_WRITEV: "writev", unix.SYS_PWRITE64: "pwrite64", unix.SYS_FSYNC: "fsync",
	unix.SYS_FDATASYNC: "fdatasync", unix.SYS_SYNCFS: "syncfs", unix.SYS_FTRUNCATE: "ftruncate",
	unix.SYS_FALLOCATE: "fallocate", unix.SYS_FSTAT: "fstat", unix.SYS_FSTATFS: "fstatfs", unix.SYS_CLOSE: "close",
	unix.SYS_GETDENTS64: "getdents64", unix.SYS_FSETXATTR: "fsetxattr", unix.SYS_FCHMOD: "fchmod",
	unix.SYS_FCHOWN: "fchown", unix.SYS_FCHDIR: "fchdir", unix.SYS_OPENAT: "openat", unix.SYS_OPENAT2: "openat2",
	unix.SYS_MKDIRAT: "mkdirat", unix.SYS_MKNODAT: "mknodat", unix.SYS_UNLINKAT: "unlinkat",
	unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2", unix.SYS_LINKAT: "linkat",
	unix.SYS_READLINKAT: "readlinkat", unix.SYS_NEWFSTATAT: "newfstatat", unix.SYS_STATX: "statx",
	unix.SYS_FCHMODAT: "fchmodat", unix.SYS_FCHOWNAT: "fchownat", unix.SYS_UTIMENSAT: "utimensat",
	unix.SYS_FACCESSAT: "faccessat", unix.SYS_FACCESSAT2: "faccessat2", unix.SYS_SYMLINKAT: "symlinkat",
	unix.SYS_LSETXATTR: "lsetxattr", unix.SYS_LGETXATTR: "lgetxattr", unix.SYS_STATFS: "statfs",
	unix.SYS_MOUNT: "mount", unix.SYS_UMOUNT2: "umount2",
	unix.SYS_EXECVE: "execve", unix.SYS_EXECVEAT: "execveat", unix.SYS_FLOCK: "flock",
}

// reads are the calls of fileCalls in which a thread may wait for work, by what it reads from.
var reads = map[int]bool{unix.SYS_READ: true, unix.SYS_READV: true, unix.SYS_PREAD64: true}

// sends are other calls in which no thread waits for work.
var sends = map[int]bool{
	unix.SYS_CONNECT: true, unix.SYS_SENDTO: true, unix.SYS_SENDMSG: true, unix.SYS_SENDMMSG: true, unix.SYS_FCNTL: true,
}

// idleChannels are the kernel functions in which a thread waits for work, by the
// beginning of their names: locks between threads, epoll, timers, children, accept,
// reads of idle descriptors, signals, and the requests of a FUSE or fanotify server.
var idleChannels = []string{
	"futex_", "ep_poll", "do_epoll_wait", "poll_schedule_timeout", "do_poll", "do_select", "do_sys_poll",
	"hrtimer_nanosleep", "do_nanosleep", "common_nsleep", "clock_nanosleep", "schedule_timeout", "schedule_hrtimeout",
	"do_wait", "kernel_wait4", "kernel_waitid", "inet_csk_accept", "inet_csk_wait", "unix_accept",
	"__skb_wait_for_more_packets", "unix_stream_data_wait", "unix_stream_read_generic", "sk_wait_data", "wait_woken",
	"tcp_recvmsg", "tcp_data_wait", "pipe_read", "anon_pipe_read", "fifo_pipe_read", "pipe_wait_readable",
	"do_sigtimedwait", "sigsuspend", "do_sigsuspend", "do_pause",
	"__x64_sys_pause", "__arm64_sys_pause", "signalfd_", "eventfd_read", "timerfd_read", "inotify_read",
	"fanotify_read", "fuse_dev_do_read", "fuse_dev_read", "io_cqring_wait", "io_wq_worker", "io_sq_thread",
	"read_events", "do_msgrcv", "do_semtimedop", "wq_sleep", "n_tty_read", "do_syslog", "syslog_print",
	"devkmsg_read", "perf_", "vhost_", "do_signal_stop", "ptrace_stop", "do_freezer_trap", "__refrigerator",
}

// IdleChannel reports whether a thread that sleeps in a kernel function waits for
// work, as most threads do. True where the function is not known ("" or "0").
func IdleChannel(channel string) bool {
	return channel == "" || channel == "0" || In(channel, idleChannels...)
}

// IsIdle reports whether a thread that sleeps waits for work: by its system call, and by the
// kernel function where the call may be of both kinds, or cannot be read.
func (s Syscall) IsIdle(channel string) bool {
	switch {
	case s.Idle != "":
		return true
	case s.File != "" && !reads[s.Number], sends[s.Number]:
		return false
	}
	return IdleChannel(channel)
}

// OpensFIFO reports whether a thread in a kernel function waits for somebody to open the other
// end of a FIFO.
func OpensFIFO(channel string) bool { return In(channel, "wait_for_partner", "fifo_open") }

// AwaitsExec reports whether a thread in a kernel function waits until its child has begun another
// program.
func AwaitsExec(channel string) bool { return In(channel, "wait_for_vfork_done", "kernel_clone") }

// OpensToRead reports whether the call opens a file for reading only.
func (s Syscall) OpensToRead() bool {
	return s.Number == unix.SYS_OPENAT && s.Args[2]&unix.O_ACCMODE == unix.O_RDONLY
}

// In reports whether a kernel function's name begins with one of the names.
func In(channel string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(channel, name) })
}
