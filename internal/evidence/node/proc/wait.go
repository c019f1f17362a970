package proc

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Syscall is a /proc/PID/syscall: the system call in which a thread waits.
type Syscall struct {
	Number int
	Args   [6]uint64
}

// ParseSyscall decodes a /proc/PID/syscall; ok is false for a running thread, and for a
// thread in the kernel without a system call ("-1 ...", as in a page fault).
func ParseSyscall(line []byte) (s Syscall, ok bool) {
	fields := strings.Fields(string(line))
	if len(fields) < 7 {
		return Syscall{}, false
	}
	n, err := strconv.Atoi(fields[0])
	if err != nil || n < 0 {
		return Syscall{}, false
	}
	s.Number = n
	for i := range s.Args {
		hex, found := strings.CutPrefix(fields[1+i], "0x")
		v, err := strconv.ParseUint(hex, 16, 64)
		if !found || err != nil {
			return Syscall{}, false
		}
		s.Args[i] = v
	}
	return s, true
}

// callKind is what a thread waits for in a system call.
type callKind int

const (
	// callIdle is one in which it waits for work.
	callIdle callKind = iota + 1
	// callFD is on a file: its first argument is a descriptor of it, or of the directory
	// that a path is relative to. The path itself lies in the memory of the process.
	callFD
	// callPath is on a file or mount that its memory names.
	callPath
)

// calls are the system calls of which something is known.
var calls = map[int]struct {
	kind callKind
	name string
}{
	unix.SYS_FUTEX: {callIdle, "futex"}, unix.SYS_EPOLL_PWAIT: {callIdle, "epoll_pwait"},
	unix.SYS_EPOLL_PWAIT2: {callIdle, "epoll_pwait2"}, unix.SYS_PPOLL: {callIdle, "ppoll"},
	unix.SYS_PSELECT6: {callIdle, "pselect6"}, unix.SYS_NANOSLEEP: {callIdle, "nanosleep"},
	unix.SYS_CLOCK_NANOSLEEP: {callIdle, "clock_nanosleep"}, unix.SYS_ACCEPT: {callIdle, "accept"},
	unix.SYS_ACCEPT4: {callIdle, "accept4"}, unix.SYS_RT_SIGTIMEDWAIT: {callIdle, "rt_sigtimedwait"},
	unix.SYS_RT_SIGSUSPEND: {callIdle, "rt_sigsuspend"}, unix.SYS_RESTART_SYSCALL: {callIdle, "restart_syscall"},
	unix.SYS_WAITID: {callIdle, "waitid"}, unix.SYS_WAIT4: {callIdle, "wait4"},

	unix.SYS_READ: {callFD, "read"}, unix.SYS_READV: {callFD, "readv"}, unix.SYS_PREAD64: {callFD, "pread64"},
	unix.SYS_WRITE: {callFD, "write"}, unix.SYS_WRITEV: {callFD, "writev"}, unix.SYS_PWRITE64: {callFD, "pwrite64"},
	unix.SYS_FSYNC: {callFD, "fsync"}, unix.SYS_FDATASYNC: {callFD, "fdatasync"}, unix.SYS_SYNCFS: {callFD, "syncfs"},
	unix.SYS_FTRUNCATE: {callFD, "ftruncate"}, unix.SYS_FALLOCATE: {callFD, "fallocate"},
	unix.SYS_FSTAT: {callFD, "fstat"}, unix.SYS_FSTATFS: {callFD, "fstatfs"}, unix.SYS_CLOSE: {callFD, "close"},
	unix.SYS_GETDENTS64: {callFD, "getdents64"}, unix.SYS_FSETXATTR: {callFD, "fsetxattr"},
	unix.SYS_FCHMOD: {callFD, "fchmod"}, unix.SYS_FCHOWN: {callFD, "fchown"}, unix.SYS_FCHDIR: {callFD, "fchdir"},
	unix.SYS_OPENAT: {callFD, "openat"}, unix.SYS_OPENAT2: {callFD, "openat2"}, unix.SYS_MKDIRAT: {callFD, "mkdirat"},
	unix.SYS_MKNODAT: {callFD, "mknodat"}, unix.SYS_UNLINKAT: {callFD, "unlinkat"},
	unix.SYS_RENAMEAT: {callFD, "renameat"}, unix.SYS_RENAMEAT2: {callFD, "renameat2"},
	unix.SYS_LINKAT: {callFD, "linkat"}, unix.SYS_READLINKAT: {callFD, "readlinkat"},
	unix.SYS_NEWFSTATAT: {callFD, "newfstatat"}, unix.SYS_STATX: {callFD, "statx"},
	unix.SYS_FCHMODAT: {callFD, "fchmodat"}, unix.SYS_FCHOWNAT: {callFD, "fchownat"},
	unix.SYS_UTIMENSAT: {callFD, "utimensat"}, unix.SYS_FACCESSAT: {callFD, "faccessat"},
	unix.SYS_FACCESSAT2: {callFD, "faccessat2"},

	unix.SYS_SYNC: {callPath, "sync"}, unix.SYS_SYMLINKAT: {callPath, "symlinkat"},
	unix.SYS_LSETXATTR: {callPath, "lsetxattr"}, unix.SYS_LGETXATTR: {callPath, "lgetxattr"},
	unix.SYS_STATFS: {callPath, "statfs"}, unix.SYS_MOUNT: {callPath, "mount"}, unix.SYS_UMOUNT2: {callPath, "umount2"},
}

// IdleCall returns the name of a system call in which a thread waits for work, "" for
// any other. Reads are missing: they may be of a file.
func IdleCall(number int) string {
	if c := calls[number]; c.kind == callIdle {
		return c.name
	}
	return ""
}

// FileSyscall returns the name of the system call in a /proc/PID/syscall: "" for a call
// that is not about files or mounts, and for a thread that is in none.
func FileSyscall(line []byte) string {
	number, _, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
	n, err := strconv.Atoi(number)
	if err != nil || calls[n].kind == callIdle {
		return ""
	}
	return calls[n].name
}

// FD returns the descriptor of a system call on a file; ok is false where it has none.
func (s *Syscall) FD() (fd uint64, ok bool) {
	return s.Args[0], calls[s.Number].kind == callFD && int32(s.Args[0]) >= 0 //nolint:gosec // AT_FDCWD is negative
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
	"wait_for_partner", "fifo_open", "do_sigtimedwait", "sigsuspend", "do_sigsuspend", "do_pause",
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

// In reports whether a kernel function's name begins with one of the names.
func In(channel string, names ...string) bool {
	for _, name := range names {
		if strings.HasPrefix(channel, name) {
			return true
		}
	}
	return false
}
