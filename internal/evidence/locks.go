package evidence

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/plegd/plegd/internal/health"
)

// fileLock is one line of /proc/locks.
type fileLock struct {
	waiting bool
	pid     int
	file    string // device and inode, as major:minor:inode
}

// parseLock parses one line of /proc/locks (proc_locks(5)):
//
//	1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF
//	1: -> FLOCK  ADVISORY  WRITE 2345 fe:00:5678 0 EOF
func parseLock(line []byte) (l fileLock, ok bool) {
	fields := strings.Fields(string(line))
	if len(fields) > 1 && fields[1] == "->" {
		l.waiting = true
		fields = append(fields[:1], fields[2:]...)
	}
	if len(fields) < 6 {
		return fileLock{}, false
	}
	pid, err := strconv.Atoi(fields[4])
	if err != nil {
		return fileLock{}, false
	}
	l.pid, l.file = pid, fields[5]
	return l, true
}

// lockOf returns the lock that a process waits for and who has it; ok is false
// when it waits for none. A waiting line stands below its holder's. The holder is
// 0 where the kernel names no process: a lock of an open file description.
func lockOf(locks []byte, pid int) (holder int, file string, ok bool) {
	var held fileLock
	for line := range bytes.Lines(locks) {
		l, valid := parseLock(line)
		if !valid {
			continue
		}
		if !l.waiting {
			held = l
			continue
		}
		if l.pid != pid {
			continue
		}
		if held.file != l.file {
			return 0, l.file, true
		}
		return max(0, held.pid), l.file, true
	}
	return 0, "", false
}

// lockWait returns the file lock that the runtime waits for, nil for none.
func (p *Process) lockWait(v *health.Process) *health.LockWait {
	b, err := readProc(p.opts.ProcFS, "locks")
	if err != nil {
		return nil
	}
	holder, file, ok := lockOf(b, v.PID)
	if !ok {
		return nil
	}
	w := &health.LockWait{HolderPID: holder, File: file, Since: v.At}
	if s, err := readStat(p.opts.ProcFS, strconv.Itoa(holder)); err == nil {
		w.HolderComm = s.comm
	}
	if last := p.last; last != nil && last.PID == v.PID && last.Lock != nil && last.Lock.File == file {
		w.Since = last.Lock.Since
	}
	return w
}
