package evidence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/proc"
)

const (
	// searchInterval is the time between two searches of all processes; for
	// successorGrace after a process went, its successor is looked for at each sample.
	searchInterval = 5 * time.Second
	successorGrace = 30 * time.Second
)

// processFinder settles which process is the one of a socket.
type processFinder struct {
	opts   ProcessOptions
	reader proc.Reader

	named    proc.Stat // the process that PeerPID named
	asked    int       // the last value of PeerPID
	peerPID  int       // its value when known was settled
	holder   proc.ID   // the process that holds the listener with this inode
	inode    uint64
	searched time.Time // for the inode

	known  proc.Stat // the process that was settled last
	cgroup string    // its /proc/PID/cgroup
	seenAt time.Time
	seenUp time.Duration // the same moment, since boot
	passed time.Time     // the last search for a successor
}

// seen stores that s was there and is the process; up is the time since boot.
func (f *processFinder) seen(s proc.Stat, up time.Duration) {
	if s.ID() != f.known.ID() {
		f.cgroup = f.cgroupOf(s.PID)
	}
	f.known, f.seenAt, f.seenUp, f.peerPID = s, time.Now(), up, f.asked
}

func (f *processFinder) cgroupOf(pid int) string {
	b, err := f.reader.Read(proc.Path(f.opts.ProcFS, pid, "cgroup"))
	if err != nil {
		return ""
	}
	return string(b)
}

// find returns the process: the one that SO_PEERCRED named; else, as where systemd made
// the socket, the one that was found for the same connection; else the one that has the
// listener open; else the one that was there last; else its successor, which does not
// listen yet. The error is that it is gone, or why it cannot be found.
func (f *processFinder) find(ctx context.Context) (proc.Stat, error) {
	pid := f.opts.PeerPID()
	f.asked = pid
	if pid > 1 {
		s, err := f.peer(pid)
		if err == nil {
			return s, nil
		}
		if _, first := f.reader.Stat(f.opts.ProcFS, 1); errors.Is(err, fs.ErrPermission) || first != nil {
			return proc.Stat{}, fmt.Errorf("look at pid %d, which listens at the runtime's socket: "+
				"%s does not show it to plegd (hidepid, ProtectProc, or another pid namespace)", pid, f.opts.ProcFS)
		}
	}
	known := func() (proc.Stat, bool) {
		s, err := f.opts.Table.Alive(f.known.PID)
		return s.Stat, f.known.PID != 0 && err == nil && s.ID() == f.known.ID()
	}
	if pid <= 1 && pid == f.peerPID {
		if s, ok := known(); ok { // the listener may be another process's; the connection is not
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
	if s, ok := known(); ok {
		return s, nil
	}
	switch {
	case f.known.PID != 0:
		return f.successor(ctx)
	case denied != nil:
		return proc.Stat{}, denied
	}
	return proc.Stat{}, node.ErrGone
}

// peer returns the process that SO_PEERCRED named. The number remains when the process
// has ended, and may be given to another one: that counts only with the same name.
func (f *processFinder) peer(pid int) (proc.Stat, error) {
	s, err := f.opts.Table.Alive(pid)
	if err != nil {
		return proc.Stat{}, err
	}
	if f.named.PID == pid && f.named.Start != s.Start && f.named.Comm != s.Comm {
		return proc.Stat{}, node.ErrGone
	}
	f.named = s.Stat
	return s.Stat, nil
}

// listener returns the process that has the socket of an inode open.
func (f *processFinder) listener(ctx context.Context, inode uint64) (proc.Stat, error) {
	if inode == f.inode && f.holder.PID != 0 {
		if s, err := f.opts.Table.Alive(f.holder.PID); err == nil && s.ID() == f.holder {
			return s.Stat, nil
		}
	}
	if inode == f.inode && time.Since(f.searched) < searchInterval {
		return proc.Stat{}, node.ErrGone
	}
	f.inode, f.holder = inode, proc.ID{}
	pid, err := f.opts.Table.Holder(ctx, uint32(inode)) //nolint:gosec // inodes of sockets have 32 bits
	f.searched = time.Now()
	if err != nil {
		return proc.Stat{}, err
	}
	s, err := f.opts.Table.Alive(pid)
	if err == nil {
		f.holder = s.ID()
	}
	return s.Stat, err
}

// successor returns the process that was started in the place of the one that was there
// last: of its name, in its cgroup, since it was last seen. It finds a runtime that
// starts before it listens.
func (f *processFinder) successor(ctx context.Context) (proc.Stat, error) {
	if away := time.Since(f.seenAt); away > successorGrace && time.Since(f.passed) < searchInterval {
		return proc.Stat{}, node.ErrGone
	}
	f.passed = time.Now()
	all, err := f.opts.Table.Processes(ctx, 0)
	if err != nil {
		return proc.Stat{}, err
	}
	young := map[int]proc.Stat{}
	for pid, s := range all.ByPID {
		later := s.Comm == f.known.Comm && proc.TicksToDuration(s.Start+1) >= f.seenUp
		if later && f.cgroup != "" && f.cgroupOf(pid) == f.cgroup {
			young[pid] = s.Stat
		}
	}
	// A child that it has forked, and that has yet to execute another program, has its
	// name too. Of several: the one under the same parent, then the newest.
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
		return proc.Stat{}, node.ErrGone
	}
	return best, nil
}
