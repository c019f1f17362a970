package evidence

import (
	"context"
	"maps"
	"time"

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
		return p.successor()
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

// successor returns the process that was started in the place of the last one since that was last seen:
// of several the newest.
func (p *Process) successor() (proc.Process, error) {
	if p.successors == nil {
		ended := p.predecessor
		ended.comm = p.last.Comm
		p.successors = newSuccessors(ended)
	}
	p.successors.look()
	p.successors.watch()
	newest, unread := p.successors.newest()
	maps.Copy(p.unread, unread)
	if newest.PID == 0 {
		return newest, proc.ErrGone
	}
	return newest, nil
}
