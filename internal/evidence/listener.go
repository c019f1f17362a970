package evidence

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

const (
	// keptOwners is how many listening sockets are remembered with their process,
	// so that a path that leads back to an earlier one is recognised at once.
	keptOwners = 8
	// listenerPeriod is short: the path may lead elsewhere at any moment, and a
	// look takes one stat file. While all is well, the queue's source sees that it
	// does, and listenerCalm will do.
	listenerPeriod = 500 * time.Millisecond
	listenerCalm   = 3 * time.Second
)

// ListenerOptions configure the source about the process that listens at the
// runtime's path.
type ListenerOptions struct {
	// ProcFS is where /proc is mounted.
	ProcFS string
	// Path is the runtime's path.
	Path func() string
	// Queue returns the last sample of the accept queue, nil when there is none.
	Queue func() *health.Queue
	// Peer returns the process that listened when the newest connection to the path
	// was made, by SO_PEERCRED, and when that was; a zero time before the first.
	Peer func() (pid int, at time.Time)
	// Held returns the process behind the held connection, 0 when it is not known.
	Held func() int
	// Moved is called when another socket than before listens at the path. It must
	// not block. nil: nobody.
	Moved func()
}

// listenerSource finds the process that a new connection to the path reaches.
type listenerSource struct {
	opts   ListenerOptions
	reader proc.Reader
	namer  namer

	inode uint64
	// begun is when inode was first seen, until when the one before it was last
	// seen, and beforePID whose that was. Zero for the first inode of all.
	begun, until time.Time
	beforePID    int
	seen         time.Time // the last sample of the queue

	owners []listenerOwner // the newest last
	missed listenerOwner   // the inode that was searched for in vain
	last   *health.Listener
	lastID proc.ID
}

// listenerOwner is a listening socket with its process.
type listenerOwner struct {
	inode    uint64
	id       proc.ID
	searched time.Time
}

// NewListener returns the source about the process that listens at the runtime's
// path, twice a second, every 3 s while all is well. It is named by SO_PEERCRED of a connection made since the
// listening socket was first seen there; where that is systemd, or no such
// connection could be made, by the socket's inode, which takes CAP_SYS_PTRACE.
// There is nothing to say while nobody listens, or while it cannot be told.
func NewListener(opts ListenerOptions) *Watch[health.Listener] {
	return NewWatch(Spec[health.Listener]{
		Name: "listener", Period: listenerPeriod, Calm: listenerCalm, Timeout: 2 * time.Second,
		Gather: newListenerSource(opts).gather, Store: func(e *health.Evidence, v *health.Listener) { e.Listener = v },
	})
}

func newListenerSource(opts ListenerOptions) *listenerSource {
	return &listenerSource{opts: opts, namer: newNamer(opts.ProcFS)}
}

func (l *listenerSource) gather(ctx context.Context) (*health.Listener, error) {
	begun := time.Now()
	q := l.opts.Queue()
	if q != nil && !q.Listening {
		return nil, ErrNoData
	}
	if q != nil {
		l.at(q)
	}
	s, err := l.find(ctx)
	if err != nil {
		return nil, err
	}
	v := &health.Listener{At: begun, Inode: l.inode, PID: s.PID, Comm: s.Comm}
	v.Since = v.At
	if last := l.last; last != nil && l.lastID == s.ID() {
		v.Since = last.Since
	}
	if s.PID != 0 {
		v.Command, v.Unit = l.namer.of(s.ID())
		v.Related = l.related(s)
		v.OtherMounts = l.otherMounts(s.PID)
	}
	l.last, l.lastID = v, s.ID()
	return v, nil
}

// otherMounts reports whether the path's file is there in the mounts of a process,
// which takes CAP_SYS_PTRACE to see, and not in plegd's.
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

// at takes note of the socket that listens at the path now.
func (l *listenerSource) at(q *health.Queue) {
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

// find returns the process that listens. One without a pid is in another pid
// namespace.
func (l *listenerSource) find(ctx context.Context) (proc.Stat, error) {
	peer, at := l.opts.Peer()
	met := l.met(peer, at)
	if met && peer > 1 {
		if s, err := l.alive(peer); err == nil {
			l.own(listenerOwner{inode: l.inode, id: s.ID()})
			return s, nil
		}
	}
	if l.inode == 0 {
		return proc.Stat{}, ErrNoData
	}
	ended := false
	if i := slices.IndexFunc(l.owners, func(o listenerOwner) bool { return o.inode == l.inode }); i >= 0 {
		o := l.owners[i]
		if s, err := l.alive(o.id.PID); err == nil && s.ID() == o.id {
			return s, nil
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
		// What was said before stands until the queue has been looked at again.
		return proc.Stat{}, errListenerEnded
	}
	return proc.Stat{}, ErrNoData // the next connection tells
}

var errListenerEnded = errors.New("the process that listened has ended")

// met reports whether a connection was made to the socket that listens now: since
// that was first seen, or since the one before it was last seen and to another
// process than that one's.
func (l *listenerSource) met(peer int, at time.Time) bool {
	switch {
	case at.IsZero():
		return false
	case l.inode == 0:
		return true
	case at.After(l.seen):
		return false // another socket may have been at the path by then: the next sample tells
	case at.After(l.begun):
		return true
	}
	return at.After(l.until) && l.beforePID != 0 && peer > 1 && peer != l.beforePID
}

// search looks for the process that has the socket open.
func (l *listenerSource) search(ctx context.Context) (proc.Stat, error) {
	if l.missed.inode == l.inode && time.Since(l.missed.searched) < searchEvery {
		return proc.Stat{}, errNoProcess
	}
	pid, err := holderOf(ctx, l.opts.ProcFS, l.inode)
	if err == nil {
		var s proc.Stat
		if s, err = l.alive(pid); err == nil {
			l.own(listenerOwner{inode: l.inode, id: s.ID()})
			return s, nil
		}
	}
	l.missed = listenerOwner{inode: l.inode, searched: time.Now()}
	return proc.Stat{}, err
}

// own remembers whose a listening socket is.
func (l *listenerSource) own(o listenerOwner) {
	for i := range l.owners {
		if l.owners[i].inode == o.inode {
			l.owners[i] = o
			return
		}
	}
	l.owners = append(l.owners[max(0, len(l.owners)-keptOwners+1):], o)
}

func (l *listenerSource) alive(pid int) (proc.Stat, error) {
	s, err := l.reader.Stat(l.opts.ProcFS, pid)
	if err == nil && s.Dead() {
		err = errNoProcess
	}
	return s, err
}

// related reports whether the listener is a fork of the runtime behind the held
// connection: started by it, or its ancestor of the same name. A runtime's
// containers descend from their shims or conmons, which leave the runtime.
func (l *listenerSource) related(s proc.Stat) bool {
	held := l.opts.Held()
	if held <= 1 || held == s.PID {
		return false
	}
	h, err := l.alive(held)
	if err != nil {
		return false
	}
	return l.descends(s, held) || s.Comm == h.Comm && l.descends(h, s.PID)
}

func (l *listenerSource) descends(s proc.Stat, from int) bool {
	for range maxAncestors {
		if s.PPID == from {
			return true
		}
		if s.PPID <= 1 {
			return false
		}
		var err error
		if s, err = l.reader.Stat(l.opts.ProcFS, s.PPID); err != nil {
			return false
		}
	}
	return false
}
