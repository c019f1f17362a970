package node

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrManyFDs is returned for a process with more descriptors than are looked at.
var ErrManyFDs = errors.New("more descriptors than plegd reads")

// maxFDs bounds the descriptors of a process that are read.
const maxFDs = 1 << 16

// EachFD calls f for every descriptor of a process with where it leads, until f returns
// false. Root without CAP_SYS_PTRACE may list the descriptors of a process with more
// capabilities, and not read where they lead: that is an error that wraps
// fs.ErrPermission.
func EachFD(procfs string, pid int, f func(fd, to string) bool) error {
	dir := Path(procfs, pid, "fd")
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // only read from
	for n := 0; n < maxFDs; {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			n++
			to, err := os.Readlink(dir + "/" + name)
			if errors.Is(err, os.ErrPermission) {
				return err
			}
			if err == nil && !f(name, to) {
				return nil
			}
		}
		if err != nil {
			return nil //nolint:nilerr // the end of the directory, or of the process
		}
	}
	return fmt.Errorf("process %d: %w", pid, ErrManyFDs)
}

// SocketInode decodes socket:[123], what a socket's descriptor is a link to.
func SocketInode(link string) (uint32, bool) {
	s, ok := strings.CutPrefix(link, "socket:[")
	if !ok || !strings.HasSuffix(s, "]") {
		return 0, false
	}
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 32)
	return uint32(n), err == nil
}

// FDInfo holds the fields of a /proc/PID/fdinfo/FD that plegd needs.
type FDInfo struct {
	// Flags are those of open(2), MountID the mount of the file, PID the process
	// of a pidfd (0 for none), FuseConnection the minor number of the FUSE mount
	// that a descriptor of /dev/fuse serves (-1 where the kernel does not say).
	Flags, MountID, PID, FuseConnection int
	Inode                               string // "" before Linux 5.14
	// Permits is true of a fanotify group that decides about accesses, and where that is
	// not known.
	Permits bool
	// Locks are the locks held through the descriptor.
	Locks []Lock
}

// ParseFDInfo decodes a /proc/PID/fdinfo/FD. procfs knows no locks, pidfds and FUSE
// connections.
func ParseFDInfo(b []byte) FDInfo {
	info := FDInfo{
		Flags: number(b, "flags", 8, 0), MountID: number(b, "mnt_id", 10, 0), PID: number(b, "Pid", 10, 0),
		FuseConnection: number(b, "fuse_connection", 10, -1), Inode: Value(b, "ino"),
	}
	flags, _, _ := strings.Cut(Value(b, "fanotify flags"), " ")
	class, err := strconv.ParseUint(flags, 16, 64)
	info.Permits = err != nil || class&(unix.FAN_CLASS_CONTENT|unix.FAN_CLASS_PRE_CONTENT) != 0
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("lock:")); ok {
			if l, ok := ParseLock(rest); ok {
				info.Locks = append(info.Locks, l)
			}
		}
	}
	return info
}

// Lock is one line of /proc/locks: a lock, or one that waits for it.
type Lock struct {
	Waiting bool
	PID     int    // -1 for a lock of an open file (F_OFD_SETLK): nobody's
	File    string // major:minor:inode; the device in hexadecimal
}

// ParseLock decodes one line of /proc/locks:
//
//	1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF
//	1: -> FLOCK  ADVISORY  WRITE 2345 fe:00:5678 0 EOF
func ParseLock(line []byte) (l Lock, ok bool) {
	fields := strings.Fields(string(line))
	if len(fields) > 1 && fields[1] == "->" {
		l.Waiting = true
		fields = slices.Delete(fields, 1, 2)
	}
	if len(fields) < 6 || strings.Count(fields[5], ":") != 2 {
		return Lock{}, false
	}
	pid, err := strconv.Atoi(fields[4])
	if err != nil || pid < -1 {
		return Lock{}, false
	}
	l.PID, l.File = pid, fields[5]
	return l, true
}

// LockWaits returns the locks that a process waits for and others have; in each
// pid is the holder, 0 where that is not known. The waiting ones stand below the
// holder, also one that waits behind another.
func LockWaits(locks []byte, pid int) (out []Lock) {
	var held Lock
	for line := range bytes.Lines(locks) {
		l, ok := ParseLock(line)
		switch {
		case !ok:
			held = Lock{}
		case !l.Waiting:
			held = l
		case l.PID != pid, held.File == l.File && held.PID == pid: // or one thread of it waits for another
		case held.File == l.File:
			out = append(out, Lock{PID: max(0, held.PID), File: l.File})
		default:
			out = append(out, Lock{File: l.File})
		}
	}
	return out
}

// Mount is one line of /proc/PID/mountinfo.
type Mount struct {
	ID     int
	Device string // major:minor
	Point  string
	Type   string
	Source string
	// Options are the mount's own, and after them those of its file system.
	Options string
}

// ParseMounts decodes a /proc/PID/mountinfo; an invalid line is left out. procfs does not
// decode the escapes.
func ParseMounts(b []byte) (out []Mount) {
	for line := range strings.Lines(string(b)) {
		before, after, found := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		left, right := strings.Split(before, " "), strings.Split(after, " ")
		if !found || len(left) < 6 || len(right) < 2 {
			continue
		}
		if id, err := strconv.ParseUint(left[0], 10, 31); err == nil {
			out = append(out, Mount{
				ID: int(id), Device: left[2], Point: unescape(left[4]), Type: right[0], Source: unescape(right[1]),
				Options: strings.Join(append(left[5:6:6], right[2:]...), ","),
			})
		}
	}
	return out
}

// MountOf returns the mount that a path lies on: of several at one point the last.
func MountOf(mounts []Mount, path string) (best Mount, ok bool) {
	for _, m := range mounts {
		rest, below := strings.CutPrefix(path, m.Point)
		below = below && (rest == "" || rest[0] == '/' || strings.HasSuffix(m.Point, "/"))
		if below && len(m.Point) >= len(best.Point) {
			best, ok = m, true
		}
	}
	return best, ok
}

// unescape decodes the \ooo of mountinfo, an escape of Go's too.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	if plain, err := strconv.Unquote(`"` + strings.ReplaceAll(s, `"`, `\"`) + `"`); err == nil {
		return plain
	}
	return s
}
