package evidence

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/proc"
)

// find returns the process: the one at the other end of the held connection; else the one
// that was there last; else the one that listened when a fresh connection was made; else, as
// where systemd made the socket, the one that has the listener open; else the successor of the
// last one, which does not listen yet. The error is that it is gone, or why it cannot be found.
func (p *Process) find(ctx context.Context) (proc.Process, error) {
	held, probed := p.hop.peers()
	for _, candidate := range []peer{held, {pid: p.last.PID}, probed} {
		if candidate.pid <= 1 {
			continue
		}
		s, err := p.hop.table.Alive(candidate.pid)
		if err == nil && p.accepts(s, candidate) {
			return s, nil
		}
		if err := p.hop.checkShown(candidate.pid, err); err != nil {
			return proc.Process{}, err
		}
	}
	holder, err := p.hop.holder(ctx)
	if err == nil {
		return holder, nil
	}
	if p.last.PID != 0 {
		return p.successor(ctx)
	}
	return proc.Process{}, err
}

// accepts reports whether a process is the candidate: its number may belong to another process
// by now. One that was started after the connection was made did not make it, and one that
// follows under the same number counts only with the same name.
func (p *Process) accepts(s proc.Process, candidate peer) bool {
	if !candidate.at.IsZero() {
		started := proc.StartedAt(time.Now(), p.up(), s.Start)
		if started.After(candidate.at.Add(startSlack)) {
			return false
		}
	}
	reused := p.last.PID == candidate.pid && !p.isLast(s)
	return !reused || p.last.Comm == s.Comm
}

// successor returns the process that was started in the place of the last one since that was last
// seen; of several the newest, but not a child that it has forked and that has yet to execute
// another program.
func (p *Process) successor(ctx context.Context) (proc.Process, error) {
	looks := 1
	if p.up()-p.seenUp <= successorGrace {
		looks = successorLooks
	}
	for range looks {
		newest := p.newest()
		if newest.PID != 0 {
			return newest, nil
		}
		if looks == 1 || !bounded.Sleep(ctx, successorWatch/successorLooks) {
			break
		}
	}
	return proc.Process{}, proc.ErrGone
}

// newest returns the newest process that follows the last one now; none is zero.
func (p *Process) newest() (best proc.Process) {
	pids, err := proc.PIDs(p.hop.procfs)
	p.unread.Add("processes", err)
	if p.older == nil {
		p.older = map[int]bool{}
	}
	for _, pid := range pids {
		if p.older[pid] {
			continue
		}
		s, err := p.hop.table.Alive(pid)
		switch {
		case err != nil:
		case !p.isNewer(s):
			p.older[pid] = true
		case s.Start >= best.Start && p.follows(s):
			best = s
		}
	}
	return best
}

// follows reports whether a newer process is in the place of the last one, and none that it has forked.
func (p *Process) follows(s proc.Process) bool {
	if s.Comm != p.last.Comm || !p.isInItsPlace(s) {
		return false
	}
	parent, err := p.hop.table.Alive(s.PPID)
	return err != nil || parent.Comm != s.Comm || !p.isNewer(parent)
}

// isNewer reports whether a process was started after the last one was last seen.
func (p *Process) isNewer(s proc.Process) bool { return proc.TicksToDuration(s.Start+1) >= p.seenUp }

// isInItsPlace reports whether a process of the last one's name is in its cgroup, or has its
// arguments and its mounts. What could not be read of either may be why it is not known to be.
func (p *Process) isInItsPlace(s proc.Process) bool {
	found := p.placeOf(s.PID)
	if p.place.cgroup != "" && found.cgroup == p.place.cgroup {
		return true
	}
	args := p.hop.table.Args(s.ID())
	isSameCommand := len(args) > 1 && len(p.args) > 1 && slices.Equal(args[1:], p.args[1:])
	if isSameCommand && p.place.mounts != "" && found.mounts == p.place.mounts {
		return true
	}
	maps.Copy(p.unread, p.place.unread)
	maps.Copy(p.unread, found.unread)
	return false
}
