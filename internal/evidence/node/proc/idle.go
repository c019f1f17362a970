package proc

import (
	"cmp"
	"strings"

	"golang.org/x/sys/unix"
)

// idleChannels are the kernel functions in which a thread waits for work, by the
// beginning of their names: locks between threads, epoll, timers, children, accept,
// reads of idle descriptors, signals, and the requests of a FUSE or fanotify server.
var idleChannels = []string{
	"futex_", "ep_poll", "do_epoll_wait", "poll_schedule_timeout", "do_poll", "do_select", "do_sys_poll",
	"hrtimer_nanosleep", "do_nanosleep", "common_nsleep", "clock_nanosleep", "schedule_timeout", "schedule_hrtimeout",
	"do_wait", "kernel_wait4", "kernel_waitid", "inet_csk_accept", "inet_csk_wait", "unix_accept",
	"__skb_wait_for_more_packets", "unix_stream_data_wait", "unix_stream_read_generic", "sk_wait_data", "wait_woken",
	"tcp_recvmsg", "tcp_data_wait", "pipe_read", "anon_pipe_read", "fifo_pipe_read", "pipe_wait_readable", "wait_for_partner", "fifo_open",
	"do_sigtimedwait", "sigsuspend", "do_sigsuspend", "do_pause", "__x64_sys_pause", "__arm64_sys_pause",
	"signalfd_", "eventfd_read", "timerfd_read", "inotify_read", "fanotify_read", "fuse_dev_do_read", "fuse_dev_read",
	"io_cqring_wait", "io_wq_worker", "io_sq_thread", "read_events", "do_msgrcv", "do_semtimedop", "wq_sleep",
	"n_tty_read", "do_syslog", "syslog_print", "devkmsg_read", "perf_", "vhost_",
	"do_signal_stop", "ptrace_stop", "do_freezer_trap", "__refrigerator",
}

// IdleChannel reports whether a thread that sleeps in a kernel function waits for
// work, as most threads do. True where the function is not known ("" or "0").
func IdleChannel(channel string) bool {
	if channel == "" || channel == "0" {
		return true
	}
	for _, prefix := range idleChannels {
		if strings.HasPrefix(channel, prefix) {
			return true
		}
	}
	return false
}

// IdleCall returns the name of a system call in which a thread waits for work, "" for
// any other. Reads are missing: they may be of a file.
func IdleCall(number int) string { return cmp.Or(idleCalls[number], archIdleCalls[number]) }

var idleCalls = map[int]string{
	unix.SYS_FUTEX: "futex", unix.SYS_EPOLL_PWAIT: "epoll_pwait", unix.SYS_EPOLL_PWAIT2: "epoll_pwait2",
	unix.SYS_PPOLL: "ppoll", unix.SYS_PSELECT6: "pselect6", unix.SYS_NANOSLEEP: "nanosleep",
	unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep", unix.SYS_ACCEPT4: "accept4", unix.SYS_ACCEPT: "accept",
	unix.SYS_RT_SIGTIMEDWAIT: "rt_sigtimedwait", unix.SYS_RT_SIGSUSPEND: "rt_sigsuspend",
	unix.SYS_RESTART_SYSCALL: "restart_syscall", unix.SYS_WAITID: "waitid", unix.SYS_WAIT4: "wait4",
}
