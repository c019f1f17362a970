package evidence

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// maxLockFDs bounds the descriptors that are searched for the file of a lock.
const maxLockFDs = 1024

// startTakes is how long a start may take: a snapshotter's database is opened after the
// socket.
const startTakes = 5 * time.Minute

// lock returns the file lock that the process has waited for longest, nil for none.
//
// bbolt, in which containerd keeps meta.db, does not block in flock(2) but polls, so
// /proc/locks shows no waiter. A process that starts waits for a file that it has open and
// another process has locked.
func (p *Process) lock(pid int, started, now time.Time) (longest *health.LockWait) {
	b, _ := node.ReadFile(p.hop.procfs, "locks") // what cannot be read shows none
	locks := node.ParseLocks(b)
	waits := slices.DeleteFunc(slices.Clone(locks), func(l node.Lock) bool { return !l.WaitsFor(pid) })
	starts := now.Sub(started) < startTakes || p.hop.inode() == 0 || p.last != nil && p.last.Lock != nil
	if len(waits) == 0 && starts {
		waits = p.polls(locks, pid)
	}
	files := make([]string, 0, len(waits))
	for _, l := range waits {
		files = append(files, l.File)
	}
	since := p.locks.Update(now, files...)
	for _, l := range waits {
		if at := since[l.File]; longest == nil || at.Before(longest.Since) {
			longest = &health.LockWait{HolderPID: l.Holder, File: l.File, Since: at}
		}
	}
	if longest == nil {
		return nil
	}
	if path := p.openFiles(pid, "")[longest.File]; path != "" {
		longest.File = path
	}
	if s, err := p.hop.table.Alive(longest.HolderPID); err == nil {
		longest.HolderComm = s.Comm
	}
	return longest
}

// polls returns the locks of other processes on databases that the process has open.
func (p *Process) polls(locks []node.Lock, pid int) (out []node.Lock) {
	held := map[string]node.Lock{}
	for _, l := range locks {
		if own := held[l.File].PID == pid; !l.Waiting && l.PID > 0 && !own {
			held[l.File] = l
		}
	}
	for file := range p.openFiles(pid, ".db") {
		if l, ok := held[file]; ok && l.PID != pid {
			out = append(out, node.Lock{File: file, Holder: l.PID})
		}
	}
	return out
}

// openFiles returns the paths of files with a suffix that the process has open, by
// major:minor:inode as /proc/locks has them (fdinfo, Linux 5.14): an inode alone may be
// that of another file system. It asks the file system nothing: that may be what hangs.
func (p *Process) openFiles(pid int, suffix string) map[string]string {
	fds, err := node.Numbers(node.Path(p.hop.procfs, pid, "fdinfo"), maxLockFDs)
	mounts, mountsErr := node.ReadFile(node.Path(p.hop.procfs, pid, "mountinfo"))
	if err != nil || mountsErr != nil {
		return nil
	}
	devices := map[int]string{}
	for _, m := range node.ParseMounts(mounts) {
		var major, minor int
		if _, err := fmt.Sscanf(m.Device, "%d:%d", &major, &minor); err == nil {
			devices[m.ID] = fmt.Sprintf("%02x:%02x", major, minor)
		}
	}
	out := map[string]string{}
	for _, fd := range fds {
		link, err := os.Readlink(node.Path(p.hop.procfs, pid, "fd/") + strconv.Itoa(fd))
		if err != nil || !strings.HasPrefix(link, "/") || !strings.HasSuffix(link, suffix) {
			continue
		}
		info := node.ReadFDInfo(p.hop.procfs, pid, fd)
		if device := devices[info.MountID]; info.Inode != "" && device != "" {
			out[device+":"+info.Inode] = link
		}
	}
	return out
}
