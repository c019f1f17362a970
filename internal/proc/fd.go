package proc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxFDs bounds the descriptors of a process that are read.
const maxFDs = 1 << 16

// EachFD calls visit for every descriptor of a process with where it leads, until visit returns
// false. Root without CAP_SYS_PTRACE may list the descriptors of a process with more
// capabilities, and not read where they lead: the error is Denied then. It is TooLarge where the
// process has more than 65,536, beside the calls for those.
func EachFD(procfs string, pid int, visit func(fd int, target string) bool) error {
	dir := Path(procfs, pid, "fd")
	d, err := os.Open(dir)
	if err != nil {
		return failed(dir, err)
	}
	defer func() { _ = d.Close() }() // only read from
	fds, unread := numbersOf(d, maxFDs)
	if len(fds) == 0 {
		return unread
	}
	opened := int(d.Fd()) //nolint:gosec // a descriptor
	target := make([]byte, unix.PathMax)
	for _, fd := range fds {
		n, err := unix.Readlinkat(opened, strconv.Itoa(fd), target)
		if outcomeOf(err) == Denied {
			return failed(dir, err)
		}
		if err == nil && !visit(fd, string(target[:n])) {
			return nil
		}
	}
	return unread
}

// CountFDs returns the number of descriptors of a process: since Linux 6.2 the size of the
// directory, else by a list of at most 65,536.
func CountFDs(procfs string, pid int) (int, error) {
	dir := Path(procfs, pid, "fd")
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, failed(dir, err)
	}
	if st.Size > 0 {
		return int(st.Size), nil
	}
	fds, err := Numbers(dir, maxFDs)
	if errors.Is(err, TooLarge) {
		return len(fds), nil // at least
	}
	return len(fds), err
}

// Limits are the soft limits of a process, and one hard limit; math.MaxInt for none.
type Limits struct {
	Files, HardFiles int // open files
	FileSize         int // bytes of a file that it writes
}

// ReadLimits reads the limits of a process.
func ReadLimits(procfs string, pid int) (Limits, error) {
	path := Path(procfs, pid, "limits")
	b, err := Read(path, maxProcFile)
	if err != nil {
		return Limits{}, err
	}
	files, hardFiles, badFiles := limitsOf(string(b), "Max open files")
	size, _, badSize := limitsOf(string(b), "Max file size")
	if err := errors.Join(badFiles, badSize); err != nil {
		return Limits{}, failed(path, err)
	}
	return Limits{Files: files, HardFiles: hardFiles, FileSize: size}, nil
}

// SoftLimit returns a soft limit of a process by its name, as "stack size"; math.MaxInt for none.
func SoftLimit(procfs string, pid int, name string) (int, error) {
	b, err := Read(Path(procfs, pid, "limits"), maxProcFile)
	if err != nil {
		return 0, err
	}
	soft, _, err := limitsOf(string(b), "Max "+name)
	return soft, err
}

// limitsOf decodes a line of limits.
func limitsOf(text, name string) (soft, hard int, err error) {
	_, line, _ := strings.Cut(text, name)
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return 0, 0, fmt.Errorf("no line %q", name)
	}
	soft, badSoft := parseLimit(fields[0])
	hard, badHard := parseLimit(fields[1])
	return soft, hard, errors.Join(badSoft, badHard)
}

func parseLimit(field string) (int, error) {
	if field == "unlimited" {
		return math.MaxInt, nil
	}
	return strconv.Atoi(field)
}

// SocketInode decodes socket:[123], what a socket's descriptor is a link to.
func SocketInode(link string) (uint32, bool) {
	s, ok := strings.CutPrefix(link, "socket:[")
	n, err := strconv.ParseUint(strings.TrimSuffix(s, "]"), 10, 32)
	return uint32(n), ok && err == nil
}

// SocketInodes returns the inodes of the sockets of a process; the error is as EachFD's, beside
// those that were read.
func SocketInodes(procfs string, pid int) (map[uint32]bool, error) {
	inodes := map[uint32]bool{}
	err := EachFD(procfs, pid, func(_ int, target string) bool {
		inode, isSocket := SocketInode(target)
		if isSocket {
			inodes[inode] = true
		}
		return true
	})
	return inodes, err
}

// FDInfo holds the fields of a /proc/PID/fdinfo/FD that plegd needs.
type FDInfo struct {
	// Flags are those of open(2), MountID the mount of the file, PID the process
	// of a pidfd (0 for none), FuseConnection the minor number of the FUSE mount
	// that a descriptor of /dev/fuse serves (-1 where the kernel does not say).
	Flags, MountID, PID, FuseConnection int
	// Terminal is the number of the /dev/pts whose other end the descriptor is, -1 for none.
	Terminal int
	Inode    string // "" before Linux 5.14
	// EventFD identifies the counter of an eventfd (Linux 5.2), "" for none.
	EventFD string
	// Permits is true of a fanotify group that decides about accesses, and where that is
	// not known.
	Permits bool
	// Faults is how many threads wait for a page from the holder of a userfaultfd.
	Faults int
	// Locks are the locks held through the descriptor.
	Locks []Lock
}

// ReadOnly reports whether the descriptor is open for reading alone, as the end of a pipe that is read is.
func (f FDInfo) ReadOnly() bool { return f.Flags&unix.O_ACCMODE == unix.O_RDONLY }

// ReadFDInfo reads the fdinfo of a descriptor; it is empty where that cannot be read.
// procfs knows no locks, pidfds and FUSE connections.
func ReadFDInfo(procfs string, pid, fd int) FDInfo {
	b, _ := ReadFile(Path(procfs, pid, "fdinfo"), strconv.Itoa(fd))
	flags, _, _ := strings.Cut(value(b, "fanotify flags"), " ")
	class, err := strconv.ParseUint(flags, 16, 64)
	return FDInfo{
		Flags:          number(b, "flags", 8, 0),
		MountID:        number(b, "mnt_id", 10, 0),
		PID:            number(b, "Pid", 10, 0),
		FuseConnection: number(b, "fuse_connection", 10, -1),
		Terminal:       number(b, "tty-index", 10, -1),
		Inode:          value(b, "ino"),
		EventFD:        value(b, "eventfd-id"),
		Permits:        err != nil || class&(unix.FAN_CLASS_CONTENT|unix.FAN_CLASS_PRE_CONTENT) != 0,
		Faults:         number(b, "pending", 10, 0),
		Locks:          ParseLocks(b),
	}
}

// StatFD asks the kernel about the file that a descriptor leads to, also where no path leads to that any more.
func StatFD(procfs string, pid, fd int) (st unix.Stat_t, err error) {
	path := Path(procfs, pid, "fd/"+strconv.Itoa(fd))
	if err := unix.Stat(path, &st); err != nil {
		return st, failed(path, err)
	}
	return st, nil
}

// terminalMajor is the device number of pseudo terminals (UNIX98_PTY_SLAVE_MAJOR in linux/major.h).
const terminalMajor = 136

// Terminal returns the number of the pseudo terminal that a descriptor leads to under any name, -1 for none.
func Terminal(procfs string, pid, fd int) int {
	st, err := StatFD(procfs, pid, fd)
	if err != nil || unix.Major(st.Rdev) != terminalMajor {
		return -1
	}
	return int(unix.Minor(st.Rdev))
}

// HasLock reports whether a process has the lock of a file, by its descriptors; true where these cannot be read. A lock
// of flock(2) stays with a descriptor after the process that took it has ended, as flock(1) in a shell, and an open
// file's has no process.
func HasLock(procfs string, pid int, file string) bool {
	_, hasLock, _ := LockedPath(procfs, pid, file) // an error is in hasLock
	return hasLock
}

// LockedPath returns the path by which a process has a file open of which it has the lock, "" for none, and whether it has that,
// as HasLock. The error is why not all of its descriptors could be read.
func LockedPath(procfs string, pid int, file string) (path string, hasLock bool, err error) {
	err = EachFD(procfs, pid, func(fd int, leads string) bool {
		if IsFile(leads) && ReadFDInfo(procfs, pid, fd).HasLock(file) {
			path = leads
		}
		return path == ""
	})
	return path, path != "" || err != nil && !Gone(err), err
}

// HasLock reports whether a file is locked by the descriptor.
func (f FDInfo) HasLock(file string) bool {
	return slices.ContainsFunc(f.Locks, func(l Lock) bool { return l.File == file && !l.Waiting })
}

// IsFile reports whether a descriptor leads to a file.
func IsFile(leads string) bool { return strings.HasPrefix(leads, "/") }

// Lock is a file lock, or a wait for one.
type Lock struct {
	Waiting bool
	// Breaking is true of a lease that its holder is to give up.
	Breaking bool
	// Shared is true of a lock that several may have, to read.
	Shared bool
	PID    int    // -1 for a lock of an open file (F_OFD_SETLK): nobody's
	File   string // major:minor:inode; the device in hexadecimal
	Holder int    // of a wait: the process that has the lock, 0 where that is not known
}

// OpenFiles returns the paths of files with a suffix that a process has open and has not locked by that descriptor, by
// major:minor:inode as /proc/locks has them (fdinfo, Linux 5.14): an inode alone may be that of another file system. It
// asks the file system nothing: that may be what hangs. mounts are those of the process.
func OpenFiles(ctx context.Context, procfs string, pid int, mounts []Mount, suffix string) (map[string]string, error) {
	devices := map[int]string{}
	for _, m := range mounts {
		devices[m.ID] = lockDevice(m.Device)
	}
	out := map[string]string{}
	err := EachFD(procfs, pid, func(fd int, target string) bool {
		if !strings.HasPrefix(target, "/") || !strings.HasSuffix(target, suffix) {
			return ctx.Err() == nil
		}
		info := ReadFDInfo(procfs, pid, fd)
		if info.Inode != "" && devices[info.MountID] != "" && len(info.Locks) == 0 {
			out[devices[info.MountID]+":"+info.Inode] = target
		}
		return ctx.Err() == nil
	})
	return out, err
}

// lockDevice converts major:minor of a mount table to the hexadecimal of /proc/locks; "" where it
// is none.
func lockDevice(device string) string {
	var major, minor int
	if _, err := fmt.Sscanf(device, "%d:%d", &major, &minor); err != nil {
		return ""
	}
	return fmt.Sprintf("%02x:%02x", major, minor)
}

// Inode is that of the file, without its device.
func (l *Lock) Inode() string { return l.File[strings.LastIndexByte(l.File, ':')+1:] }

// ReadLocks reads /proc/locks.
func ReadLocks(procfs string) ([]Lock, error) {
	b, err := ReadFile(procfs, "locks")
	return ParseLocks(b), err
}

// ParseLocks decodes /proc/locks, or the locks in a fdinfo. The waits for a lock stand below
// it, also one that waits behind another. An invalid line is left out.
//
//	1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF
//	1: -> FLOCK  ADVISORY  WRITE 2345 fe:00:5678 0 EOF
//	2: LEASE  BREAKING  READ 1234 fe:00:5679 0 EOF
//	2: -> LEASE  BREAKER   READ 2345 <none>:0 0 EOF
func ParseLocks(b []byte) []Lock {
	var out []Lock
	var held Lock
	for line := range strings.Lines(string(b)) {
		l, err := parseLock(strings.TrimPrefix(line, "lock:"))
		if errors.Is(err, errLockLine) {
			held = Lock{}
			continue
		}
		if !l.Waiting {
			held = l
		}
		l.waitBelow(held)
		if err == nil && l.File != "" {
			out = append(out, l)
		}
	}
	return out
}

// waitBelow completes a wait by the lock below which it stands.
func (l *Lock) waitBelow(held Lock) {
	if l.File == noFile {
		l.File = held.File
	}
	if l.Waiting && l.File == held.File {
		l.Holder = max(0, held.PID)
	}
}

// noFile stands for the file of a wait for a lease: it is that of the lease above (fs/locks.c, lock_get_status).
const noFile = "<none>:0"

var errLockLine = errors.New("not the line of a lock")

// parseLock decodes one line. The error is errLockLine where it is none, and another one where
// its process is not valid.
func parseLock(line string) (Lock, error) {
	fields := strings.Fields(line)
	l := Lock{
		Waiting:  len(fields) > 1 && fields[1] == "->",
		Breaking: len(fields) > 2 && fields[2] == "BREAKING",
	}
	if l.Waiting {
		fields = slices.Delete(fields, 1, 2)
	}
	if len(fields) < 6 {
		return Lock{}, errLockLine
	}
	l.File = fields[5]
	isLeaseWait := l.Waiting && l.File == noFile
	if !isLeaseWait && strings.Count(l.File, ":") != 2 {
		return Lock{}, errLockLine
	}
	l.Shared = fields[3] == "READ"
	pid, err := strconv.Atoi(fields[4])
	l.PID = pid
	if err == nil && pid < -1 {
		err = strconv.ErrRange
	}
	return l, err
}

// WaitsFor reports whether a process waits here for a lock of another one.
func (l Lock) WaitsFor(pid int) bool { return l.Waiting && l.PID == pid && l.Holder != pid }
