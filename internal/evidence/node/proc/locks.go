package proc

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

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
	if len(fields) < 6 {
		return Lock{}, false
	}
	pid, err := strconv.Atoi(fields[4])
	if err != nil || pid < -1 {
		return Lock{}, false
	}
	if strings.Count(fields[5], ":") != 2 {
		return Lock{}, false
	}
	l.PID, l.File = pid, fields[5]
	return l, true
}

// LockWaits returns the locks that a process waits for and others have; in each
// pid is who has it, 0 where that cannot be told. Those who wait stand below the
// one who has it, also one who waits behind another.
func LockWaits(locks []byte, pid int) []Lock {
	if !bytes.Contains(locks, []byte(" -> ")) {
		return nil
	}
	var (
		held Lock
		out  []Lock
	)
	for line := range bytes.Lines(locks) {
		l, ok := ParseLock(line)
		switch {
		case !ok:
			held = Lock{}
		case !l.Waiting:
			held = l
		case l.PID == pid && held.File == l.File && held.PID == pid:
			// One thread of it waits for another.
		case l.PID == pid:
			holder := 0
			if held.File == l.File {
				holder = max(0, held.PID)
			}
			out = append(out, Lock{PID: holder, File: l.File})
		}
	}
	return out
}
