package evidence

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

const (
	queueTimeout = 500 * time.Millisecond
	// newListenerFor is how long a listener is new: it is sampled at each tick.
	newListenerFor = 2 * time.Second
	// statTimeout limits the wait for the file system. A socket is nearly always on a
	// tmpfs; where it is not, a disk that hangs must not hide the queue.
	statTimeout = 50 * time.Millisecond
)

// newQueue returns the source of the accept queue of the listener at a hop's path. One
// netlink dump of the listening unix sockets in plegd's network namespace gives queue,
// limit, file and inode at once; it needs AF_NETLINK and the kernel's unix_diag, and no
// privilege.
//
// No listener is a sample, not an error: a Queue that is not Listening.
func newQueue(h *hop) *Watch[health.Queue] {
	return NewWatch(Spec[health.Queue]{
		Name: h.prefix + "queue", Every: 1, Timeout: queueTimeout, Gather: (&queueSource{hop: h}).gather,
		Again: func(v *health.Queue) bool {
			return v.Length > 0 || !v.Listening || v.At.Sub(v.ListeningSince) < newListenerFor
		},
		Store: func(e *health.Evidence, v *health.Queue) { e.Queue = v },
	})
}

type queueSource struct {
	hop  *hop
	stat pathStat

	cookie uint64 // of the last listener
	last   health.Queue
}

func (q *queueSource) gather(ctx context.Context) (*health.Queue, error) {
	path := q.hop.path()
	if path == "" {
		q.cookie, q.last = 0, health.Queue{}
		return nil, ErrNoData
	}
	s, found, err := q.find(ctx, path)
	if err != nil {
		return nil, err
	}
	v := health.Queue{At: time.Now(), Listening: found}
	before := q.last
	if found && s.Cookie != q.cookie {
		if before = (health.Queue{}); q.cookie != 0 {
			q.hop.moved()
		}
		q.cookie = s.Cookie
	}
	if found {
		v.Inode, v.Length, v.Limit = uint64(s.Inode), int(s.RQueue), int(s.WQueue)
		v.ListeningSince, v.FellAt = before.ListeningSince, before.FellAt
		if v.ListeningSince.IsZero() {
			v.ListeningSince = v.At
		}
		if v.Length < before.Length {
			v.FellAt = v.At
		} else {
			v.WaitingSince = before.WaitingSince
		}
		switch {
		case v.Length == 0:
			v.WaitingSince = time.Time{}
		case v.WaitingSince.IsZero():
			v.WaitingSince = v.At
		}
	}
	q.last = v
	return &v, nil
}

// find finds the listening socket behind a path.
//
// Several listeners may be bound to one name: unlinking the file and binding again
// leaves the first one listening, where no client can connect to it. connect(2) goes by
// the file, so the listener whose file is at the path is the one. That also finds a
// listener that was bound by another name, or through another mount.
//
// A listener of that name counts as well where its file cannot be compared: nothing is
// at the path any more, or the file system gives stat(2) other device numbers than it
// has itself (btrfs, some overlays). Of several, the one with the highest inode is taken.
func (q *queueSource) find(ctx context.Context, path string) (best node.Socket, found bool, err error) {
	p := q.stat.at(ctx, path)
	exact := false
	err = node.EachSocket(ctx, 1<<node.Listening, func(s node.Socket) {
		switch {
		case !s.Listens() || exact:
		case p.exists && s.File == p.file:
			best, found, exact = s, true, true
		case !slices.Contains(p.names, s.Name), p.exists && s.File.SameDevice(p.file):
		case !found || s.Inode > best.Inode:
			best, found = s, true
		}
	})
	if err != nil {
		return node.Socket{}, false, err
	}
	return best, found, nil
}

// place is the file at a socket's path.
type place struct {
	path string
	// names are the spellings by which a runtime may have bound it: as configured, and
	// with symbolic links resolved (/var/run is /run).
	names []string
	// file is zero where exists is false: nothing is there, or it cannot be read.
	file   node.FileID
	exists bool
}

// pathStat reads paths. A read that hangs is abandoned; there is one at most.
type pathStat struct {
	read func(path string) place // nil is readPlace
	slot bounded.Slot[place]
	last place
}

// at returns the place at path; if the file system does not answer, the previous state.
func (l *pathStat) at(ctx context.Context, path string) place {
	read := l.read
	if read == nil {
		read = readPlace
	}
	p, err := l.slot.Do(ctx, statTimeout, func(context.Context) (place, error) { return read(path), nil })
	switch {
	case err == nil:
		l.last = p
	case l.last.path != path:
		return place{path: path, names: []string{path}}
	}
	return l.last
}

func readPlace(path string) place {
	p := place{path: path, names: []string{path}}
	if info, err := os.Stat(path); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			p.file = node.FileID{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev), Inode: uint32(st.Ino)}
			p.exists = true
		}
	}
	// The directory first: a resolved name is needed for a file that is gone, too.
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		p.names = append(p.names, filepath.Join(dir, filepath.Base(path)))
	}
	if whole, err := filepath.EvalSymlinks(path); err == nil {
		p.names = append(p.names, whole)
	}
	return p
}
