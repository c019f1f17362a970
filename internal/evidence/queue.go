package evidence

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// newListenerFor is how long a listener is new: it is sampled at each tick.
const newListenerFor = 2 * time.Second

// newQueue returns the source of the accept queue of the listener at a hop's path. One
// netlink dump of the listening unix sockets in plegd's network namespace gives queue,
// limit, file and inode at once; it needs AF_NETLINK and the kernel's unix_diag, and no
// privilege.
//
// No listener is a sample, not an error: a Queue that is not Listening.
func newQueue(h *hop) *Watch[health.Queue] {
	return NewWatch(Spec[health.Queue]{
		Name: h.prefix + "queue", Every: 1, Timeout: 500 * time.Millisecond, Gather: (&queueSource{hop: h}).gather,
		Again: func(v *health.Queue) bool {
			return v.Length > 0 || !v.Listening || v.At.Sub(v.ListeningSince) < newListenerFor
		},
		Store: func(e *health.Evidence, v *health.Queue) { e.Queue = v },
	})
}

type queueSource struct {
	hop    *hop
	cookie uint64 // of the last listener
	last   health.Queue
}

func (q *queueSource) gather(ctx context.Context) (*health.Queue, error) {
	path := q.hop.path()
	if path == "" {
		q.cookie, q.last = 0, health.Queue{}
		return nil, ErrNoData
	}
	s, found, err := find(ctx, path)
	if err != nil {
		return nil, err
	}
	v, before := health.Queue{At: time.Now(), Listening: found}, q.last
	if found && s.Cookie != q.cookie {
		if before = (health.Queue{}); q.cookie != 0 {
			wake(q.hop.dialer.moved)
		}
		q.cookie = s.Cookie
	}
	if found {
		v.Inode, v.Length, v.Limit = uint64(s.Inode), int(s.RQueue), int(s.WQueue)
		v.ListeningSince, v.FellAt = cmp.Or(before.ListeningSince, v.At), before.FellAt
		if v.Length < before.Length {
			v.FellAt, before.WaitingSince = v.At, v.At
		}
		if v.Length > 0 {
			v.WaitingSince = cmp.Or(before.WaitingSince, v.At)
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
func find(ctx context.Context, path string) (best node.Socket, found bool, err error) {
	var st unix.Stat_t
	names, exists, exact := spellings(path), unix.Stat(path, &st) == nil, false
	file := node.FileID{Device: st.Dev, Inode: uint32(st.Ino)}
	err = node.EachSocket(ctx, 1<<node.Listening, func(s node.Socket) {
		switch {
		case !s.Listens() || exact:
		case exists && s.File == file:
			best, found, exact = s, true, true
		case !slices.Contains(names, s.Name), exists && s.File.Device == file.Device:
		case !found || s.Inode > best.Inode:
			best, found = s, true
		}
	})
	return best, found, err
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
