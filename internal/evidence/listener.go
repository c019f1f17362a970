package evidence

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

// keptOwners is how many listening sockets are remembered with their process, so that a
// path that leads back to an earlier one is recognised at once.
const keptOwners = 8

// ListenerOptions configure the source about the process that listens at a path.
type ListenerOptions struct {
	ProcFS string
	Table  *node.Table
	Path   func() string
	// Queue returns the last sample of the accept queue, nil while there is none.
	Queue func() *health.Queue
	// Peer returns the process that listened when the newest connection to the path was
	// made, by SO_PEERCRED, and when that was; a zero time before the first.
	Peer func() (pid int, at time.Time)
	// Held returns the process behind the held connection, 0 while it is not known.
	Held func() int
	// Moved is called when another socket than before listens at the path; nil: nothing.
	// It must not block.
	Moved func()
}

// listenerSource finds the process that a new connection to the path reaches.
type listenerSource struct {
	opts ListenerOptions

	inode uint64
	// begun is when inode was first seen, until when the one before it was last seen,
	// and beforePID its process. Zero for the first inode of all.
	begun, until time.Time
	beforePID    int
	seen         time.Time // the last sample of the queue

	owners []listenerOwner // the newest last
	missed listenerOwner   // the inode whose process was not found
	last   *health.Listener
	lastID proc.ID
}

// listenerOwner is a listening socket with its process.
type listenerOwner struct {
	inode    uint64
	id       proc.ID
	searched time.Time
}

// NewListener returns the source about the process that listens at the runtime's path.
// It is found by SO_PEERCRED of a connection made since the listening socket was first
// seen there; where that is systemd, or no such connection was made, by the socket's
// inode, which takes CAP_SYS_PTRACE. It has nothing to report while nothing listens.
func NewListener(opts ListenerOptions) *Watch[health.Listener] {
	return NewWatch(Spec[health.Listener]{
		Name: "listener", Every: 1, Timeout: 2 * time.Second, Gather: newListenerSource(opts).gather,
		Store: func(e *health.Evidence, v *health.Listener) { e.Listener = v },
	})
}

func newListenerSource(opts ListenerOptions) *listenerSource { return &listenerSource{opts: opts} }

func (l *listenerSource) gather(ctx context.Context) (*health.Listener, error) {
	now := time.Now()
	q := l.opts.Queue()
	if q != nil && !q.Listening {
		return nil, ErrNoData
	}
	if q != nil {
		l.observe(q)
	}
	s, err := l.find(ctx)
	if err != nil {
		return nil, err
	}
	v := &health.Listener{At: now, Inode: l.inode, PID: s.PID, Comm: s.Comm, Since: now}
	if l.last != nil && l.lastID == s.ID() {
		v.Since = l.last.Since
	}
	if s.PID != 0 {
		v.Command, v.Unit = nameOf(l.opts.Table, l.opts.ProcFS, s.ID())
		v.Related = l.related(ctx, s)
		v.OtherMounts = l.otherMounts(s.PID)
	}
	l.last, l.lastID = v, s.ID()
	return v, nil
}

// otherMounts reports whether the path's file exists in the mounts of a process, which
// takes CAP_SYS_PTRACE to see, and not in plegd's.
func (l *listenerSource) otherMounts(pid int) bool {
	if l.opts.Path == nil {
		return false
	}
	path := l.opts.Path()
	if _, err := os.Lstat(path); path == "" || !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err := os.Lstat(proc.Path(l.opts.ProcFS, pid, "root") + path)
	return err == nil
}

// observe takes a sample of the queue into account.
func (l *listenerSource) observe(q *health.Queue) {
	defer func() { l.seen = q.At }()
	if q.Inode == l.inode {
		return
	}
	if l.inode != 0 {
		l.begun, l.until, l.beforePID = q.At, l.seen, 0
		if l.last != nil {
			l.beforePID = l.last.PID
		}
		if l.opts.Moved != nil {
			l.opts.Moved()
		}
	}
	l.inode = q.Inode
}

var errListenerEnded = errors.New("the process that listened has ended")

// find returns the process that listens; one in another pid namespace has no pid.
func (l *listenerSource) find(ctx context.Context) (proc.Stat, error) {
	peer, at := l.opts.Peer()
	met := l.met(peer, at)
	if met && peer > 1 {
		if s, err := l.opts.Table.Alive(peer); err == nil {
			l.own(listenerOwner{inode: l.inode, id: s.ID()})
			return s.Stat, nil
		}
	}
	if l.inode == 0 {
		return proc.Stat{}, ErrNoData
	}
	ended := false
	if i := slices.IndexFunc(l.owners, func(o listenerOwner) bool { return o.inode == l.inode }); i >= 0 {
		o := l.owners[i]
		if s, err := l.opts.Table.Alive(o.id.PID); err == nil && s.ID() == o.id {
			return s.Stat, nil
		}
		ended = true
		l.owners = slices.Delete(l.owners, i, i+1)
	}
	s, err := l.search(ctx)
	switch {
	case err == nil:
		return s, nil
	case met && peer == 0:
		return proc.Stat{}, nil
	case ctx.Err() != nil:
		return proc.Stat{}, err
	case ended:
		return proc.Stat{}, errListenerEnded // the sample before counts until the next one
	}
	return proc.Stat{}, ErrNoData // until the next connection
}

// met reports whether a connection was made to the socket that listens now: since it was
// first seen, or since the one before it was last seen and to another process.
func (l *listenerSource) met(peer int, at time.Time) bool {
	switch {
	case at.IsZero():
		return false
	case l.inode == 0:
		return true
	case at.After(l.seen):
		return false // another socket may be at the path by then: the next sample shows it
	case at.After(l.begun):
		return true
	}
	return at.After(l.until) && l.beforePID != 0 && peer > 1 && peer != l.beforePID
}

// search looks for the process that has the socket open.
func (l *listenerSource) search(ctx context.Context) (proc.Stat, error) {
	if l.missed.inode == l.inode && time.Since(l.missed.searched) < searchInterval {
		return proc.Stat{}, node.ErrGone
	}
	pid, err := l.opts.Table.Holder(ctx, uint32(l.inode)) //nolint:gosec // inodes of sockets have 32 bits
	if err == nil {
		var s node.Process
		if s, err = l.opts.Table.Alive(pid); err == nil {
			l.own(listenerOwner{inode: l.inode, id: s.ID()})
			return s.Stat, nil
		}
	}
	l.missed = listenerOwner{inode: l.inode, searched: time.Now()}
	return proc.Stat{}, err
}

// own remembers the process of a listening socket.
func (l *listenerSource) own(o listenerOwner) {
	for i := range l.owners {
		if l.owners[i].inode == o.inode {
			l.owners[i] = o
			return
		}
	}
	l.owners = append(l.owners[max(0, len(l.owners)-keptOwners+1):], o)
}

// related reports whether the listener is a fork of the runtime behind the held
// connection: started by it, or its ancestor of the same name. Containers descend from
// their shims or conmons, which leave the runtime.
func (l *listenerSource) related(ctx context.Context, s proc.Stat) bool {
	held := l.opts.Held()
	if held <= 1 || held == s.PID {
		return false
	}
	h, err := l.opts.Table.Alive(held)
	if err != nil {
		return false
	}
	all, err := l.opts.Table.Processes(ctx, searchInterval)
	if err != nil {
		return false
	}
	child, parent := slices.Contains(all.Ancestors(s.PPID), held), slices.Contains(all.Ancestors(h.PPID), s.PID)
	return child || parent && s.Comm == h.Comm
}
