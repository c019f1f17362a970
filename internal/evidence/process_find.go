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
	hop *hop

	named    proc.Stat // the process that held named
	known    proc.Stat // the process that was settled last
	peerPID  int       // the value of held when it was
	cgroup   string    // its /proc/PID/cgroup
	seenAt   time.Time
	seenUp   time.Duration // the same moment, since boot
	searched time.Time     // the last search for a successor
}

// seen stores that s was there and is the process; up is the time since boot.
func (f *processFinder) seen(s proc.Stat, up time.Duration) {
	if s.ID() != f.known.ID() {
		f.cgroup = f.cgroupOf(s.PID)
	}
	f.known, f.seenAt, f.seenUp, f.peerPID = s, time.Now(), up, f.hop.held()
}

func (f *processFinder) cgroupOf(pid int) string {
	b, err := proc.ReadFile(proc.Path(f.hop.procfs, pid, "cgroup"))
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
	pid := f.hop.held()
	if pid > 1 {
		s, err := f.peer(pid)
		if err == nil {
			return s, nil
		}
		if _, first := proc.ReadStat(f.hop.procfs, 1); errors.Is(err, fs.ErrPermission) || first != nil {
			return proc.Stat{}, fmt.Errorf("look at pid %d, which listens at the runtime's socket: "+
				"%s does not show it to plegd (hidepid, ProtectProc, or another pid namespace)", pid, f.hop.procfs)
		}
	}
	known, err := f.hop.table.Alive(f.known.PID)
	alive := err == nil && known.ID() == f.known.ID()
	if alive && pid <= 1 && pid == f.peerPID {
		return known.Stat, nil // the listener may be another process's; the connection is not
	}
	err = node.ErrGone
	if inode := f.hop.inode(); inode != 0 {
		var holder node.Process
		if holder, err = f.hop.table.Holder(ctx, uint32(inode)); err == nil { //nolint:gosec // of a socket: 32 bits
			return holder.Stat, nil
		}
	}
	switch {
	case alive:
		return known.Stat, nil
	case f.known.PID != 0:
		return f.successor(ctx)
	}
	return proc.Stat{}, err
}

// peer returns the process that SO_PEERCRED named. The number remains when the process
// has ended, and may be given to another one: that counts only with the same name.
func (f *processFinder) peer(pid int) (proc.Stat, error) {
	s, err := f.hop.table.Alive(pid)
	if err != nil {
		return proc.Stat{}, err
	}
	if f.named.PID == pid && f.named.Start != s.Start && f.named.Comm != s.Comm {
		return proc.Stat{}, node.ErrGone
	}
	f.named = s.Stat
	return s.Stat, nil
}

// successor returns the process that was started in the place of the one that was there
// last: of its name, in its cgroup, since it was last seen. It finds a runtime that
// starts before it listens. A child that it has forked, and that has yet to execute
// another program, has its name too. Of several: the one under the same parent, then the
// newest.
func (f *processFinder) successor(ctx context.Context) (best proc.Stat, err error) {
	if time.Since(f.seenAt) > successorGrace && time.Since(f.searched) < searchInterval {
		return proc.Stat{}, node.ErrGone
	}
	f.searched = time.Now()
	all, err := f.hop.table.Processes(ctx, 0)
	if err != nil {
		return proc.Stat{}, err
	}
	follows := func(s node.Process) bool {
		return s.Comm == f.known.Comm && proc.TicksToDuration(s.Start+1) >= f.seenUp
	}
	for _, s := range all.ByPID {
		if !follows(s) || follows(all.ByPID[s.PPID]) || f.cgroup == "" || f.cgroupOf(s.PID) != f.cgroup {
			continue
		}
		same, bestSame := s.PPID == f.known.PPID, best.PPID == f.known.PPID
		if best.PID == 0 || same && !bestSame || same == bestSame && s.Start > best.Start {
			best = s.Stat
		}
	}
	if best.PID == 0 {
		return proc.Stat{}, node.ErrGone
	}
	return best, nil
}
