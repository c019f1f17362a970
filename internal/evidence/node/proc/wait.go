package proc

import (
	"bytes"
	"strconv"
	"strings"
)

// Syscall is a /proc/PID/syscall: the system call in which a thread waits.
type Syscall struct {
	Number int
	Args   [6]uint64
}

// ParseSyscall decodes a /proc/PID/syscall; ok is false for a thread that runs, and
// for one that is in the kernel without a system call ("-1 ...", as in a page
// fault).
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

// Status is what is used of /proc/PID/status.
type Status struct {
	// TracerPID is the process that traces it, 0 for none.
	TracerPID int
	// Switches counts how often it left a CPU.
	Switches uint64
}

// ParseStatus decodes a /proc/PID/status, or a thread's. A line that it does not
// know, or that is none, is passed over.
func ParseStatus(b []byte) (s Status) {
	for line := range bytes.Lines(b) {
		name, value, found := bytes.Cut(line, []byte(":"))
		if found && string(name) == "TracerPid" {
			if n, err := strconv.Atoi(string(bytes.TrimSpace(value))); err == nil && n > 0 {
				s.TracerPID = n
			}
		}
	}
	s.Switches, _ = ContextSwitches(b)
	return s
}

// FDInfo is what is used of a /proc/PID/fdinfo/FD.
type FDInfo struct {
	// Flags are those of open(2), MountID the mount of the file, PID the process
	// of a pidfd (0 for none), FuseConnection the minor number of the FUSE mount
	// that a descriptor of /dev/fuse serves (-1 where the kernel does not say).
	Flags          int
	MountID        int
	PID            int
	FuseConnection int
	// Locks are the locks held through the descriptor.
	Locks []Lock
}

// ParseFDInfo decodes a /proc/PID/fdinfo/FD; what it does not know is passed over.
func ParseFDInfo(b []byte) FDInfo {
	info := FDInfo{FuseConnection: -1}
	for line := range bytes.Lines(b) {
		name, rest, found := bytes.Cut(line, []byte(":"))
		if !found {
			continue
		}
		value := string(bytes.TrimSpace(rest))
		switch string(name) {
		case "flags":
			if n, err := strconv.ParseInt(value, 8, 32); err == nil {
				info.Flags = int(n)
			}
		case "mnt_id":
			info.MountID, _ = strconv.Atoi(value)
		case "Pid":
			if n, err := strconv.Atoi(value); err == nil && n > 0 {
				info.PID = n
			}
		case "fuse_connection":
			if n, err := strconv.Atoi(value); err == nil && n >= 0 {
				info.FuseConnection = n
			}
		case "lock":
			if l, ok := ParseLock(rest); ok {
				info.Locks = append(info.Locks, l)
			}
		}
	}
	return info
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

// ParseMounts decodes a /proc/PID/mountinfo; a line that is none is passed over.
func ParseMounts(b []byte) (out []Mount) {
	for line := range bytes.Lines(b) {
		before, after, found := strings.Cut(strings.TrimSuffix(string(line), "\n"), " - ")
		left, right := strings.Split(before, " "), strings.Split(after, " ")
		if !found || len(left) < 6 || len(right) < 2 {
			continue
		}
		id, err := strconv.Atoi(left[0])
		if err != nil || id < 0 {
			continue
		}
		out = append(out, Mount{ID: id, Device: left[2], Point: unescape(left[4]), Type: right[0], Source: unescape(right[1]), Options: strings.Join(append(left[5:6:6], right[2:]...), ",")})
	}
	return out
}

// MountOf returns the mount that a path lies on: of several at one point the last.
func MountOf(mounts []Mount, path string) (best Mount, ok bool) {
	for _, m := range mounts {
		if len(m.Point) >= len(best.Point) && below(path, m.Point) {
			best, ok = m, true
		}
	}
	return best, ok
}

func below(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(dir, "/"))
}

// unescape decodes the \ooo of mountinfo.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
