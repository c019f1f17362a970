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
	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
)

// statTimeout limits the wait for the file system. A socket is nearly always on a tmpfs;
// where it is not, a disk that hangs must not hide the queue.
const statTimeout = 50 * time.Millisecond

// listenerFinder finds the listening socket behind a path.
//
// Several listeners may be bound to one name: unlinking the file and binding again
// leaves the first one listening, where no client can connect to it. connect(2) goes by
// the file, so the listener whose file is at the path is the one. That also finds a
// listener that was bound by another name, or through another mount.
//
// A listener of that name counts as well where its file cannot be compared: nothing is
// at the path any more, or the file system gives stat(2) other device numbers than it
// has itself (btrfs, some overlays). Of several, the one with the highest inode is taken.
type listenerFinder struct {
	diag   sockdiag.Conn
	looker pathLooker
}

func (f *listenerFinder) find(ctx context.Context, path string) (best sockdiag.Socket, found bool, err error) {
	p := f.looker.at(ctx, path)
	exact := false
	err = f.diag.All(ctx, 1<<sockdiag.Listening, sockdiag.ShowListener, func(s sockdiag.Socket) {
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
		return sockdiag.Socket{}, false, err
	}
	return best, found, nil
}

// socketPlace is the result of stat(2) of a socket's path.
type socketPlace struct {
	path string
	// names are the spellings by which a runtime may have bound it: as configured, and
	// with symbolic links resolved (/var/run is /run).
	names []string
	// file is zero where exists is false: nothing is there, or it cannot be read.
	file   sockdiag.FileID
	exists bool
}

// pathLooker reads paths. A read that hangs is abandoned; there is one at most.
type pathLooker struct {
	look func(path string, last socketPlace) socketPlace // nil is lookAt
	slot bounded.Slot[socketPlace]
	last socketPlace
}

// at returns the state of path; if the file system does not answer, the previous one.
func (l *pathLooker) at(ctx context.Context, path string) socketPlace {
	look, last := l.look, l.last
	if look == nil {
		look = lookAt
	}
	p, err := l.slot.Do(ctx, statTimeout, func(context.Context) (socketPlace, error) { return look(path, last), nil })
	if err == nil {
		l.last = p
	}
	if l.last.path != path {
		return socketPlace{path: path, names: []string{path}}
	}
	return l.last
}

// lookAt reads a path. A file that was there last time keeps its names.
func lookAt(path string, last socketPlace) socketPlace {
	p := socketPlace{path: path, names: []string{path}}
	if info, err := os.Stat(path); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			p.file, p.exists = sockdiag.FileID{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev), Inode: uint32(st.Ino)}, true
		}
	}
	if p.exists && last.exists && p.path == last.path && p.file == last.file {
		return last
	}
	// The directory first: a resolved name is needed for a file that is gone, too.
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		p.addName(filepath.Join(dir, filepath.Base(path)))
	}
	if whole, err := filepath.EvalSymlinks(path); err == nil {
		p.addName(whole)
	}
	return p
}

func (p *socketPlace) addName(name string) {
	if !slices.Contains(p.names, name) {
		p.names = append(p.names, name)
	}
}
