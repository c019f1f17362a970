package evidence

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
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
	if v.Since = l.last.Since; l.lastID != s.ID() || v.Since.IsZero() {
		v.Since = v.At
	}
	v.Command, v.Unit = l.hop.nameOf(s.ID())
	v.OtherMounts = l.otherMounts(s.PID)
	l.last, l.lastID = v, s.ID()
	return &v, nil
}

// find returns the process that listens; one in another pid namespace has no pid.
func (l *listenerSource) find(ctx context.Context, q *health.Queue) (node.Process, error) {
	newest := l.hop.dialer.peer.Load()
	met := newest != nil && (!l.replaced || newest.At.After(q.ListeningSince))
	if met && newest.PeerPID > 1 {
		if s, err := l.hop.table.Alive(newest.PeerPID); err == nil {
			return s, nil
		}
	}
	if q.Inode == 0 {
		return node.Process{}, ErrNoData
	}
	s, err := l.hop.table.Holder(ctx, uint32(q.Inode)) //nolint:gosec // inodes of sockets have 32 bits
	switch {
	case err == nil, met && newest.PeerPID == 0:
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
