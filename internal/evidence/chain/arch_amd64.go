package chain

import "golang.org/x/sys/unix"

// The system calls that amd64 has besides those of newer architectures.
var (
	archIdleCalls = map[int]string{
		unix.SYS_POLL: "poll", unix.SYS_SELECT: "select", unix.SYS_EPOLL_WAIT: "epoll_wait", unix.SYS_ACCEPT: "accept", unix.SYS_PAUSE: "pause",
	}
	archPathCalls = map[int]int{
		unix.SYS_OPEN: 0, unix.SYS_STAT: 0, unix.SYS_LSTAT: 0, unix.SYS_ACCESS: 0, unix.SYS_MKDIR: 0, unix.SYS_RMDIR: 0, unix.SYS_UNLINK: 0,
		unix.SYS_RENAME: 0, unix.SYS_READLINK: 0, unix.SYS_CHMOD: 0, unix.SYS_CHOWN: 0, unix.SYS_CREAT: 0,
	}
)
