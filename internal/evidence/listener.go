package evidence

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// listenerSource finds the process that a new connection to the path reaches.
type listenerSource struct {
	hop      *hop
	replaced bool // an earlier socket has been at the path
	last     health.Listener
	lastID   node.ID
}

// newListener returns the source about the process that listens at a hop's path.
// It is found by SO_PEERCRED of a connection made since the listening socket was first
// seen there; where that is systemd, or no such connection was made, by the socket's
// inode, which takes CAP_SYS_PTRACE. It has nothing to report while nothing listens.
func newListener(h *hop) *Watch[health.Listener] {
	return NewWatch(Spec[health.Listener]{
		Name: h.prefix + "listener", Every: 1, Timeout: 2 * time.Second, Gather: (&listenerSource{hop: h}).gather,
		Store: func(e *health.Evidence, v *health.Listener) { e.Listener = v },
	})
}

func (l *listenerSource) gather(ctx context.Context) (*health.Listener, error) {
	q := cmp.Or(l.hop.queue(), &health.Queue{Listening: true})
	if !q.Listening {
		return nil, ErrNoData
	}
	l.replaced = l.replaced || q.Inode != l.last.Inode && l.last.Inode != 0
	l.last.Inode = q.Inode
	s, err := l.find(ctx, q)
	if err != nil {
		return nil, err
	}
	v := health.Listener{At: time.Now(), Inode: q.Inode, PID: s.PID, Comm: s.Comm}
	if last := l.last; !last.At.IsZero() && l.lastID == s.ID() {
		v.Since, v.Command, v.Unit = last.Since, last.Command, last.Unit
	} else if v.Since = v.At; s.PID != 0 {
		v.Command, v.Unit = l.hop.nameOf(s.ID())
	}
	if s.PID != 0 {
		v.Related, v.OtherMounts = l.related(ctx, s), l.otherMounts(s.PID)
	}
	l.last, l.lastID = v, s.ID()
	return &v, nil
}

// find returns the process that listens; one in another pid namespace has no pid.
func (l *listenerSource) find(ctx context.Context, q *health.Queue) (node.Process, error) {
	peer, at := l.hop.newest()
	met := !at.IsZero() && (!l.replaced || at.After(q.ListeningSince))
	if met && peer > 1 {
		if s, err := l.hop.table.Alive(peer); err == nil {
			return s, nil
		}
	}
	if q.Inode == 0 {
		return node.Process{}, ErrNoData
	}
	s, err := l.hop.table.Holder(ctx, uint32(q.Inode)) //nolint:gosec // inodes of sockets have 32 bits
	switch {
	case err == nil, met && peer == 0:
		return s, nil
	case ctx.Err() != nil:
		return node.Process{}, err
	}
	return node.Process{}, ErrNoData // until the next connection
}

// otherMounts reports whether the path's file exists in the mounts of a process, which
// takes CAP_SYS_PTRACE to see, and not in plegd's.
func (l *listenerSource) otherMounts(pid int) bool {
	path := l.hop.path()
	if _, err := os.Lstat(path); path == "" || !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err := os.Lstat(node.Path(l.hop.procfs, pid, "root") + path)
	return err == nil
}

// related reports whether the listener is a fork of the runtime behind the held
// connection: started by it, or its ancestor of the same name. Containers descend from
// their shims or conmons, which leave the runtime.
func (l *listenerSource) related(ctx context.Context, s node.Process) bool {
	held := l.hop.process.PID()
	if held <= 1 || held == s.PID {
		return false
	}
	all, err := l.hop.table.Processes(ctx, searchInterval)
	if err != nil {
		return false
	}
	h := all.ByPID[held]
	child, parent := slices.Contains(all.Ancestors(s.PPID), held), slices.Contains(all.Ancestors(h.PPID), s.PID)
	return child || parent && s.Comm == h.Comm
}
