package proc

import "golang.org/x/sys/unix"

// archIdleCalls are the system calls that amd64 has besides those of newer architectures.
var archIdleCalls = map[int]string{
	unix.SYS_POLL: "poll", unix.SYS_SELECT: "select", unix.SYS_EPOLL_WAIT: "epoll_wait", unix.SYS_PAUSE: "pause",
}
