package evidence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/proc"
)

const (
	// maxProcesses bounds what is looked at of /proc.
	maxProcesses = 32768
	// searchEvery is the time between two searches through /proc for the
	// runtime's process; for searchAlways after it went, its successor is looked
	// for at every sample.
	searchEvery  = 5 * time.Second
	searchAlways = 30 * time.Second
)

// errNoProcess says that there is no process to look at: it is an error by
// which a process is gone.
var errNoProcess = fmt.Errorf("find the runtime's process: %w", fs.ErrNotExist)

// processFinder settles which process is the runtime's.
type processFinder struct {
	opts   ProcessOptions
	reader proc.Reader // keeps nothing open: a search reads each process once

	told     proc.Stat // the process that PeerPID named
	asked    int       // what PeerPID said last
	peerPID  int       // what it said when known was settled on
	listens  proc.ID   // the process that has the listener with this inode
	inode    uint64
	searched time.Time // for the inode

	known    proc.Stat // the process that was settled on last
	cgroup   string    // what /proc/PID/cgroup said of it
	seenAt   time.Time
	seenUp   time.Duration // the same moment, since boot
	followed time.Time     // last search for a successor
}

// seen notes that s was there, and is the one; up is the time since boot.
func (f *processFinder) seen(s proc.Stat, up time.Duration) {
	if s.ID() != f.known.ID() {
		f.cgroup = ""
		if b, err := f.reader.Read(proc.Path(f.opts.ProcFS, s.PID, "cgroup")); err == nil {
			f.cgroup = string(b)
		}
	}
	f.known, f.seenAt, f.seenUp, f.peerPID = s, time.Now(), up, f.asked
}

// find returns the runtime's process: the one that SO_PEERCRED told; else, as
// where systemd made the socket, the one that was found for the same connection
// before; else the one that has the listener open; else the one that was there
// last; else its successor, which does not listen yet. The error says that it is
// gone, or why it cannot be told.
func (f *processFinder) find(ctx context.Context) (proc.Stat, error) {
	pid := f.opts.PeerPID()
	f.asked = pid
	if pid > 1 {
		s, err := f.peer(pid)
		if err == nil {
			return s, nil
		}
		if errors.Is(err, fs.ErrPermission) || f.hides() {
			return proc.Stat{}, fmt.Errorf("look at pid %d, which listens at the runtime's socket: %s does not show it to plegd (hidepid, ProtectProc, or another pid namespace)", pid, f.opts.ProcFS)
		}
	}
	if pid <= 1 && pid == f.peerPID && f.known.PID != 0 {
		// The listener may be another process's by now; the connection is not.
		if s, err := f.alive(f.known.PID); err == nil && s.ID() == f.known.ID() {
			return s, nil
		}
	}
	var denied error
	if inode := f.opts.ListenerInode(); inode != 0 {
		s, err := f.listener(ctx, inode)
		if err == nil {
			return s, nil
		}
		if !proc.Gone(err) {
			denied = err
		}
	}
	if f.known.PID != 0 {
		if s, err := f.alive(f.known.PID); err == nil && s.ID() == f.known.ID() {
			return s, nil
		}
		return f.successor(ctx)
	}
	if denied != nil {
		return proc.Stat{}, denied
	}
	return proc.Stat{}, errNoProcess
}

// alive reads the stat of a process that is not dead.
func (f *processFinder) alive(pid int) (proc.Stat, error) {
	s, err := f.reader.Stat(f.opts.ProcFS, pid)
	if err == nil && s.Dead() {
		return proc.Stat{}, errNoProcess
	}
	return s, err
}

// hides reports whether the processes of others cannot be seen at all.
func (f *processFinder) hides() bool {
	_, err := f.reader.Stat(f.opts.ProcFS, 1)
	return err != nil
}

// peer returns the process that SO_PEERCRED told. The number stays the same
// when the process is gone, and the kernel may give it to another one: from the
// first look on, it is the process that had it then, or one of its name.
func (f *processFinder) peer(pid int) (proc.Stat, error) {
	s, err := f.alive(pid)
	if err != nil {
		return proc.Stat{}, err
	}
	if f.told.PID == pid && f.told.Start != s.Start && f.told.Comm != s.Comm {
		return proc.Stat{}, errNoProcess
	}
	f.told = s
	return s, nil
}

// listener returns the process that has the socket of an inode open.
func (f *processFinder) listener(ctx context.Context, inode uint64) (proc.Stat, error) {
	if inode == f.inode && f.listens.PID != 0 {
		if s, err := f.alive(f.listens.PID); err == nil && s.ID() == f.listens {
			return s, nil
		}
	}
	if inode == f.inode && time.Since(f.searched) < searchEvery {
		return proc.Stat{}, errNoProcess
	}
	f.inode, f.listens = inode, proc.ID{}
	pid, err := holderOf(ctx, f.opts.ProcFS, inode)
	f.searched = time.Now()
	if err != nil {
		return proc.Stat{}, err
	}
	s, err := f.alive(pid)
	if err == nil {
		f.listens = s.ID()
	}
	return s, err
}

// holderOf returns a process that has the socket of an inode open, and not
// systemd, which keeps what it made; an error that there is none otherwise. To
// look into another process's descriptors takes CAP_SYS_PTRACE.
func holderOf(ctx context.Context, procfs string, inode uint64) (int, error) {
	all, err := proc.Numbers(procfs, maxProcesses)
	if err != nil {
		return 0, err
	}
	denied := false
	for _, pid := range all {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if pid == 1 {
			continue
		}
		dir := proc.Path(procfs, pid, "fd")
		if err := proc.MayReadFDs(dir); err != nil {
			denied = denied || errors.Is(err, fs.ErrPermission)
			continue
		}
		found := false
		proc.EachSocket(dir, func() bool { return found || ctx.Err() != nil }, func(i uint32) { found = found || uint64(i) == inode })
		if found {
			return pid, nil
		}
	}
	if denied {
		return 0, errors.New("find the process behind the runtime's socket by the socket's inode: the descriptors of other users' processes may not be read; give plegd CAP_SYS_PTRACE")
	}
	return 0, errNoProcess
}

// successor returns the process that has been started in the place of the one
// that was there last: of its name, in its cgroup, since it was last seen. It
// shows a runtime that starts, before it listens.
func (f *processFinder) successor(ctx context.Context) (proc.Stat, error) {
	if away := time.Since(f.seenAt); away > searchAlways && time.Since(f.followed) < searchEvery {
		return proc.Stat{}, errNoProcess
	}
	f.followed = time.Now()
	all, err := proc.Numbers(f.opts.ProcFS, maxProcesses)
	if err != nil {
		return proc.Stat{}, err
	}
	young := map[int]proc.Stat{}
	for _, pid := range all {
		if ctx.Err() != nil {
			return proc.Stat{}, ctx.Err()
		}
		s, err := f.alive(pid)
		if err != nil || s.Comm != f.known.Comm || proc.TicksToDuration(s.Start+1) < f.seenUp {
			continue
		}
		if b, err := f.reader.Read(proc.Path(f.opts.ProcFS, pid, "cgroup")); err == nil && string(b) == f.cgroup {
			young[pid] = s
		}
	}
	// A child that it has forked, and that is yet to become something else, has
	// its name too. Of several the one under the same parent, then the newest.
	var best proc.Stat
	for _, s := range young {
		if _, child := young[s.PPID]; child {
			continue
		}
		same, bestSame := s.PPID == f.known.PPID, best.PPID == f.known.PPID
		if best.PID == 0 || same && !bestSame || same == bestSame && s.Start > best.Start {
			best = s
		}
	}
	if best.PID == 0 {
		return proc.Stat{}, errNoProcess
	}
	return best, nil
}
