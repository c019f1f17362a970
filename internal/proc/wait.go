package proc

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/wchan"
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

// reads are the calls of fileCalls in which a thread may wait for work, depending on the file.
var reads = map[int]bool{unix.SYS_READ: true, unix.SYS_READV: true, unix.SYS_PREAD64: true}

// sends are other calls in which no thread waits for work.
var sends = map[int]bool{
	unix.SYS_CONNECT: true, unix.SYS_SENDTO: true, unix.SYS_SENDMSG: true, unix.SYS_SENDMMSG: true, unix.SYS_FCNTL: true,
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
	return wchan.IsIdle(channel)
}

// OpensToRead reports whether the call opens a file for reading only.
func (s Syscall) OpensToRead() bool {
	return s.Number == unix.SYS_OPENAT && s.Args[2]&unix.O_ACCMODE == unix.O_RDONLY
}
