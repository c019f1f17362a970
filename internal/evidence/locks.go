package evidence

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// fileLock is one line of /proc/locks: a lock, or one that waits for it.
type fileLock struct {
	waiting bool
	pid     int    // -1 for a lock of an open file (F_OFD_SETLK): nobody's
	file    string // major:minor:inode; the device in hexadecimal
}

// parseLock decodes one line of /proc/locks:
//
//	1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF
//	1: -> FLOCK  ADVISORY  WRITE 2345 fe:00:5678 0 EOF
func parseLock(line []byte) (l fileLock, ok bool) {
	fields := strings.Fields(string(line))
	if len(fields) > 1 && fields[1] == "->" {
		l.waiting = true
		fields = slices.Delete(fields, 1, 2)
	}
	if len(fields) < 6 {
		return fileLock{}, false
	}
	pid, err := strconv.Atoi(fields[4])
	if err != nil || pid < -1 {
		return fileLock{}, false
	}
	if strings.Count(fields[5], ":") != 2 {
		return fileLock{}, false
	}
	l.pid, l.file = pid, fields[5]
	return l, true
}

// lockWaits returns the locks that a process waits for and others have; in each
// pid is who has it, 0 where that cannot be told. Those who wait stand below the
// one who has it, also one who waits behind another.
func lockWaits(locks []byte, pid int) []fileLock {
	if !bytes.Contains(locks, []byte(" -> ")) {
		return nil
	}
	var (
		held fileLock
		out  []fileLock
	)
	for line := range bytes.Lines(locks) {
		l, ok := parseLock(line)
		switch {
		case !ok:
			held = fileLock{}
		case !l.waiting:
			held = l
		case l.pid == pid && held.file == l.file && held.pid == pid:
			// One thread of it waits for another.
		case l.pid == pid:
			holder := 0
			if held.file == l.file {
				holder = max(0, held.pid)
			}
			out = append(out, fileLock{pid: holder, file: l.file})
		}
	}
	return out
}

// lockWaiting is a file lock that the runtime waits for.
type lockWaiting struct {
	since time.Time
	name  string // of the file, for a person
}

// lockWait returns the file lock that the runtime has waited for longest, nil
// for none or where /proc/locks may not be read. A lock of an open file shows
// neither who has it nor who waits for it.
func (p *Process) lockWait(id procID, now time.Time) *health.LockWait {
	b, err := p.reader.read(p.opts.ProcFS + "/locks")
	if err != nil {
		b = nil
	}
	known := p.waits
	if id != p.lastID {
		known = nil
	}
	p.waits = nil
	var longest *health.LockWait
	for _, l := range lockWaits(b, id.pid) {
		w, ok := known[l.file]
		if !ok {
			w = lockWaiting{since: now, name: p.lockName(id.pid, l.file)}
		}
		if p.waits == nil {
			p.waits = map[string]lockWaiting{}
		}
		p.waits[l.file] = w
		if longest == nil || w.since.Before(longest.Since) {
			longest = &health.LockWait{HolderPID: l.pid, File: w.name, Since: w.since}
		}
	}
	if longest != nil && longest.HolderPID > 0 {
		if s, err := p.reader.stat(p.opts.ProcFS, longest.HolderPID); err == nil {
			longest.HolderComm = s.comm
		}
	}
	return longest
}

// maxLockFDs bounds the descriptors among which a file is looked for.
const maxLockFDs = 1024

// lockName returns the path of a file that the process has open, where that may
// be told (CAP_SYS_PTRACE), else file, which is major:minor:inode. It asks the
// file system nothing: the one with the lock may be what hangs.
func (p *Process) lockName(pid int, file string) string {
	inode := file[strings.LastIndexByte(file, ':')+1:]
	dir := pidPath(p.opts.ProcFS, pid, "fdinfo")
	fds, err := numbers(dir, maxLockFDs)
	if err != nil {
		return file
	}
	path := ""
	for _, fd := range fds {
		b, err := p.reader.read(dir + "/" + strconv.Itoa(fd))
		if err != nil || fdInode(b) != inode {
			continue
		}
		link, err := os.Readlink(pidPath(p.opts.ProcFS, pid, "fd/") + strconv.Itoa(fd))
		if err != nil || !strings.HasPrefix(link, "/") {
			continue
		}
		if path != "" && path != link {
			return file // the same inode on two devices: which one?
		}
		path = link
	}
	if path == "" {
		return file
	}
	return path
}

// fdInode returns the inode of a /proc/PID/fdinfo/FD ("ino:", Linux 5.14), "" if
// it says none.
func fdInode(b []byte) string {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("ino:")); ok {
			return string(bytes.TrimSpace(rest))
		}
	}
	return ""
}
