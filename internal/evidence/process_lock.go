package evidence

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// startTakes is how long a start may take: a snapshotter's database is opened after the
// socket.
const startTakes = 5 * time.Minute

// lock returns a file lock that the process of a sample waits for, the same one as
// before where that lasts; nil for none.
//
// bbolt, in which containerd keeps meta.db, does not block in flock(2) but polls, so
// /proc/locks shows no waiter. A process that starts waits for a file that it has open and
// another process has locked.
func (p *Process) lock(v *health.Process) *health.LockWait {
	b, _ := node.ReadFile(p.hop.procfs, "locks") // what cannot be read shows none
	locks, q := node.ParseLocks(b), p.hop.queue()
	waits := slices.DeleteFunc(slices.Clone(locks), func(l node.Lock) bool { return !l.WaitsFor(v.PID) })
	starts := v.At.Sub(v.Start) < startTakes || q == nil || q.Inode == 0 || p.lockFile != ""
	if len(waits) == 0 && starts {
		waits = p.polls(locks, v.PID)
	}
	if len(waits) == 0 {
		p.lockFile = ""
		return nil
	}
	i := slices.IndexFunc(waits, func(l node.Lock) bool { return l.File == p.lockFile })
	l := waits[max(0, i)]
	out := &health.LockWait{HolderPID: l.Holder, File: cmp.Or(p.openFiles(v.PID, "")[l.File], l.File), Since: v.At}
	if i >= 0 {
		out.Since = p.last.Lock.Since
	}
	if s, err := p.hop.table.Alive(l.Holder); err == nil {
		out.HolderComm = s.Comm
	}
	p.lockFile = l.File
	return out
}

// polls returns the locks of other processes on databases that the process has open, as
// waits for them.
func (p *Process) polls(locks []node.Lock, pid int) (out []node.Lock) {
	open := p.openFiles(pid, ".db")
	for _, l := range locks {
		switch {
		case l.PID == pid:
			delete(open, l.File) // its own
		case !l.Waiting && l.PID > 0:
			out = append(out, node.Lock{Waiting: true, PID: pid, File: l.File, Holder: l.PID})
		}
	}
	return slices.DeleteFunc(out, func(l node.Lock) bool { return open[l.File] == "" })
}

// openFiles returns the paths of files with a suffix that the process has open, by
// major:minor:inode as /proc/locks has them (fdinfo, Linux 5.14): an inode alone may be
// that of another file system. It asks the file system nothing: that may be what hangs.
func (p *Process) openFiles(pid int, suffix string) map[string]string {
	mounts, _ := node.ReadFile(node.Path(p.hop.procfs, pid, "mountinfo")) // of nothing there is none
	devices, out := map[int]string{}, map[string]string{}
	for _, m := range node.ParseMounts(mounts) {
		var major, minor int
		if _, err := fmt.Sscanf(m.Device, "%d:%d", &major, &minor); err == nil {
			devices[m.ID] = fmt.Sprintf("%02x:%02x", major, minor)
		}
	}
	_ = node.EachFD(p.hop.procfs, pid, func(fd int, to string) bool { // what cannot be read is left out
		if strings.HasPrefix(to, "/") && strings.HasSuffix(to, suffix) {
			if info := node.ReadFDInfo(p.hop.procfs, pid, fd); info.Inode != "" && devices[info.MountID] != "" {
				out[devices[info.MountID]+":"+info.Inode] = to
			}
		}
		return true
	})
	return out
}
