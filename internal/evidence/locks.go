package evidence

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

// lockWaiting is a file lock that the runtime waits for.
type lockWaiting struct {
	since time.Time
	name  string // of the file, for a person
}

// lockWait returns the file lock that the runtime has waited for longest, nil
// for none or where /proc/locks may not be read. A lock of an open file shows
// neither who has it nor who waits for it.
func (p *Process) lockWait(id proc.ID, now time.Time) *health.LockWait {
	b, err := p.reader.Read(p.opts.ProcFS + "/locks")
	if err != nil {
		b = nil
	}
	known := p.waits
	if id != p.lastID {
		known = nil
	}
	p.waits = nil
	var longest *health.LockWait
	for _, l := range proc.LockWaits(b, id.PID) {
		w, ok := known[l.File]
		if !ok {
			w = lockWaiting{since: now, name: p.lockName(id.PID, l.File)}
		}
		if p.waits == nil {
			p.waits = map[string]lockWaiting{}
		}
		p.waits[l.File] = w
		if longest == nil || w.since.Before(longest.Since) {
			longest = &health.LockWait{HolderPID: l.PID, File: w.name, Since: w.since}
		}
	}
	if longest != nil && longest.HolderPID > 0 {
		if s, err := p.reader.Stat(p.opts.ProcFS, longest.HolderPID); err == nil {
			longest.HolderComm = s.Comm
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
	dir := proc.Path(p.opts.ProcFS, pid, "fdinfo")
	fds, err := proc.Numbers(dir, maxLockFDs)
	if err != nil {
		return file
	}
	path := ""
	for _, fd := range fds {
		b, err := p.reader.Read(dir + "/" + strconv.Itoa(fd))
		if err != nil || proc.FDInode(b) != inode {
			continue
		}
		link, err := os.Readlink(proc.Path(p.opts.ProcFS, pid, "fd/") + strconv.Itoa(fd))
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
