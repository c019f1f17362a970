package evidence

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// newListenerFor is how long a listener is new: it is sampled at each tick.
	newListenerFor = 2 * time.Second
	// acceptTime is how long a connection may wait for the listener's process to get its turn at a
	// CPU: an idle one takes up to some milliseconds. It is less than patience.
	acceptTime = 15 * time.Millisecond
)

// newQueue returns the source of the accept queue of the listener at a hop's path, by a
// dump of the unix sockets in plegd's network namespace. It needs AF_NETLINK and the kernel's
// unix_diag, and no privilege. No listener is a sample, not an error.
func newQueue(h *hop) *Watch[facts.Queue] {
	return NewWatch(Spec[facts.Queue]{
		Name:    h.prefix + "queue",
		Every:   1,
		Calm:    2,
		Timeout: 500 * time.Millisecond,
		Gather:  (&queueSource{hop: h, sleep: time.Sleep}).gather,
		Resample: func(v *facts.Queue) bool {
			return v.Length > 0 || !v.Listening || v.At.Sub(v.ListeningSince) < newListenerFor
		},
		Store: func(e *facts.Evidence, v *facts.Queue) { e.Queue = v },
	})
}

type queueSource struct {
	hop    *hop
	sleep  func(time.Duration)
	cookie uint64      // of the last listener
	file   proc.FileID // its file
	last   facts.Queue
}

func (q *queueSource) gather(ctx context.Context) (*facts.Queue, error) {
	path := q.hop.path()
	if path == "" {
		q.cookie = 0
		q.last = facts.Queue{}
		return nil, ErrNoData
	}
	file, exists := fileAt(path)
	if exists && file == q.file && q.hop.isCalm() && q.isServed() {
		q.last.At = time.Now()
		v := q.last
		return &v, nil
	}
	s, found, err := find(ctx, path)
	if err == nil && q.hasJustCome(&s) {
		q.sleep(acceptTime)
		s, found, err = find(ctx, path)
	}
	if err != nil {
		return nil, err
	}
	q.file = s.File
	v := facts.Queue{At: time.Now(), Listening: found}
	if found {
		v.Inode = uint64(s.Inode)
		v.Length = int(s.RQueue)
		v.Limit = int(s.WQueue)
		q.follow(&v, s.Cookie)
	}
	q.last = v
	return &v, nil
}

// isServed reports whether the listener has accepted a connection since the last sample, in which
// none waited.
func (q *queueSource) isServed() bool {
	return q.last.Length == 0 && q.hop.dialer.last.Load().AnsweredAt.After(q.last.At)
}

// hasJustCome reports whether connections wait where none did before, and nothing else is wrong: the
// listener may be about to accept them.
func (q *queueSource) hasJustCome(s *proc.Socket) bool {
	return s.RQueue > 0 && q.last.Length == 0 && q.hop.isCalm()
}

// follow continues the history of the listener in a new sample, or begins that of another one.
func (q *queueSource) follow(v *facts.Queue, cookie uint64) {
	last := q.last
	if cookie != q.cookie {
		last = facts.Queue{}
		if q.cookie != 0 {
			q.hop.dialer.moved.Send()
		}
		q.cookie = cookie
	}
	v.ListeningSince = cmp.Or(last.ListeningSince, v.At)
	v.FellAt = last.FellAt
	waiting := last.WaitingSince
	if v.Length < last.Length {
		v.FellAt = v.At
		waiting = v.At
	}
	if v.Length > 0 {
		v.WaitingSince = cmp.Or(waiting, v.At)
	}
}

// find finds the listening socket behind a path.
//
// Several may be bound to one name: unlinking the file and binding again leaves the first one
// listening. connect(2) goes by the file, so the listener whose file is at the path is the one,
// also where it was bound by another name, or through another mount.
//
// A listener of that name counts where its file cannot be compared: nothing is at the path
// any more, or the file system gives stat(2) other device numbers than it has itself (btrfs,
// some overlays). Of several, the one with the highest inode is taken.
func find(ctx context.Context, path string) (best proc.Socket, found bool, err error) {
	names := spellings(path)
	file, exists := fileAt(path)
	exact := false
	err = proc.EachSocket(ctx, 1<<proc.Listening, func(s proc.Socket) {
		if !s.Listens() || exact {
			return
		}
		exact = exists && s.File == file
		another := exists && s.File.Device == file.Device && !exact
		named := slices.Contains(names, s.Name) && !another
		if exact || named && (!found || s.Inode > best.Inode) {
			best = s
			found = true
		}
	})
	return best, found, err
}

// fileAt returns the file at a path.
func fileAt(path string) (file proc.FileID, exists bool) {
	var st unix.Stat_t
	exists = unix.Stat(path, &st) == nil
	return proc.FileID{Device: st.Dev, Inode: uint32(st.Ino)}, exists
}

// spellings are the names by which a runtime may have bound a path: as configured, and
// with symbolic links resolved (/var/run is /run), also where its file is gone.
func spellings(path string) []string {
	names := []string{path}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		names = append(names, filepath.Join(dir, filepath.Base(path)))
	}
	if whole, err := filepath.EvalSymlinks(path); err == nil {
		names = append(names, whole)
	}
	return names
}

// listenerSource finds the process that a new connection to the path reaches.
type listenerSource struct {
	hop      *hop
	replaced bool // an earlier socket has been at the path
	last     facts.Listener
	lastID   proc.ID
}

// newListener returns the source about the process that listens at a hop's path: by
// SO_PEERCRED of a connection made since the listening socket was first seen there; where that
// is systemd, or there is none, by the socket's inode, which takes CAP_SYS_PTRACE.
func newListener(h *hop) *Watch[facts.Listener] {
	return NewWatch(Spec[facts.Listener]{
		Name:    h.prefix + "listener",
		Every:   1,
		Calm:    8,
		Timeout: 2 * time.Second,
		Gather:  (&listenerSource{hop: h}).gather,
		Store:   func(e *facts.Evidence, v *facts.Listener) { e.Listener = v },
	})
}

func (l *listenerSource) gather(ctx context.Context) (*facts.Listener, error) {
	q := cmp.Or(l.hop.queue(), &facts.Queue{Listening: true})
	if !q.Listening {
		return nil, ErrNoData
	}
	l.replaced = l.replaced || q.Inode != l.last.Inode && l.last.Inode != 0
	l.last.Inode = q.Inode
	s, err := l.find(ctx, q)
	if err != nil {
		return nil, err
	}
	v := facts.Listener{At: time.Now(), Inode: q.Inode, PID: s.PID, Comm: s.Comm}
	v.Since = v.At
	if l.lastID == s.ID() && !l.last.Since.IsZero() {
		v.Since = l.last.Since
		v.Command = l.last.Command
		v.Unit = l.last.Unit
	}
	if v.Command == "" { // of a new one, or not read in time
		v.Command, v.Unit = l.hop.nameOf(s.ID())
	}
	v.OtherMounts = l.otherMounts(s.PID)
	l.last = v
	l.lastID = s.ID()
	return &v, nil
}

// find returns the process that listens; one in another pid namespace has no pid.
func (l *listenerSource) find(ctx context.Context, q *facts.Queue) (proc.Process, error) {
	newest := l.hop.dialer.peer.Load()
	met := newest != nil && (!l.replaced || newest.At.After(q.ListeningSince))
	if met && newest.PeerPID > 1 {
		if s, err := l.hop.table.Alive(newest.PeerPID); err == nil {
			return s, nil
		}
	}
	if q.Inode == 0 {
		return proc.Process{}, ErrNoData
	}
	s, err := l.hop.table.Holder(ctx, uint32(q.Inode)) //nolint:gosec // inodes of sockets have 32 bits
	if err == nil || met && newest.PeerPID == 0 {
		return s, nil
	}
	return proc.Process{}, ErrNoData // until the next connection
}

// otherMounts reports whether the path's file exists in the mounts of a process, which
// takes CAP_SYS_PTRACE to see, and not in plegd's.
func (l *listenerSource) otherMounts(pid int) bool {
	path := l.hop.path()
	if path == "" {
		return false
	}
	_, err := os.Lstat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err = os.Lstat(proc.Path(l.hop.procfs, pid, "root") + path)
	return err == nil
}
