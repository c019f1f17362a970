package proc

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// ContextSwitches returns the number of context switches of a /proc/PID/status;
// ok is false where it has none.
func ContextSwitches(status []byte) (n uint64, ok bool) {
	for line := range bytes.Lines(status) {
		name, value, found := bytes.Cut(line, []byte(":"))
		if !found || !bytes.HasSuffix(name, []byte("voluntary_ctxt_switches")) {
			continue
		}
		if m, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64); err == nil {
			n, ok = n+m, true
		}
	}
	return n, ok
}

// Schedstat is a /proc/PID/schedstat, or a thread's: nanoseconds on a CPU,
// nanoseconds runnable without one, and how often it was put on one.
type Schedstat struct{ Run, Delay, Slices uint64 }

// ParseSchedstat decodes "run delay slices"; ok is false for anything else. The
// parser of procfs takes a regular expression to it, for every thread.
func ParseSchedstat(b []byte) (s Schedstat, ok bool) {
	b = bytes.TrimRight(b, "\n")
	for i, p := range []*uint64{&s.Run, &s.Delay, &s.Slices} {
		field, rest, more := bytes.Cut(b, []byte(" "))
		if more != (i < 2) {
			return Schedstat{}, false
		}
		n, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil {
			return Schedstat{}, false
		}
		*p, b = n, rest
	}
	return s, true
}

// fileSyscalls are the system calls on files and mounts in which a Go program
// waits for a file system.
var fileSyscalls = map[int]string{
	unix.SYS_OPENAT:     "openat",
	unix.SYS_READ:       "read",
	unix.SYS_PREAD64:    "pread64",
	unix.SYS_WRITE:      "write",
	unix.SYS_PWRITE64:   "pwrite64",
	unix.SYS_WRITEV:     "writev",
	unix.SYS_FSYNC:      "fsync",
	unix.SYS_FDATASYNC:  "fdatasync",
	unix.SYS_SYNC:       "sync",
	unix.SYS_SYNCFS:     "syncfs",
	unix.SYS_FTRUNCATE:  "ftruncate",
	unix.SYS_FALLOCATE:  "fallocate",
	unix.SYS_MKDIRAT:    "mkdirat",
	unix.SYS_MKNODAT:    "mknodat",
	unix.SYS_UNLINKAT:   "unlinkat",
	unix.SYS_RENAMEAT:   "renameat",
	unix.SYS_RENAMEAT2:  "renameat2",
	unix.SYS_LINKAT:     "linkat",
	unix.SYS_SYMLINKAT:  "symlinkat",
	unix.SYS_FCHMODAT:   "fchmodat",
	unix.SYS_FCHOWNAT:   "fchownat",
	unix.SYS_UTIMENSAT:  "utimensat",
	unix.SYS_FSETXATTR:  "fsetxattr",
	unix.SYS_LSETXATTR:  "lsetxattr",
	unix.SYS_LGETXATTR:  "lgetxattr",
	unix.SYS_FSTAT:      "fstat",
	unix.SYS_STATFS:     "statfs",
	unix.SYS_FSTATFS:    "fstatfs",
	unix.SYS_GETDENTS64: "getdents64",
	unix.SYS_READLINKAT: "readlinkat",
	unix.SYS_CLOSE:      "close",
	unix.SYS_MOUNT:      "mount",
	unix.SYS_UMOUNT2:    "umount2",
	unix.SYS_NEWFSTATAT: "newfstatat",
	unix.SYS_STATX:      "statx",
}

// FileSyscall returns the name of the system call in a /proc/PID/syscall: "" for
// one that is not about files, for a thread that runs, and for one that is in the
// kernel without a system call ("-1 ...", as in a page fault).
func FileSyscall(line []byte) string {
	number, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
	n, err := strconv.Atoi(string(number))
	if err != nil {
		return ""
	}
	return fileSyscalls[n]
}
