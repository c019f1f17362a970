package evidence

import (
	"context"
	"errors"
	"slices"

	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
)

const (
	// listenersMax limits the listeners of one name that are asked about. There
	// is one, and while a runtime restarts two.
	listenersMax = 16
)

// listenerFinder finds the listening socket behind a path.
//
// Several listeners may be bound to one name: unlinking the file and binding
// again leaves the old one listening, where nobody can connect to it. connect(2)
// goes by the file, not by the name, and sock_diag tells each listener's file:
// the one whose file is at the path is the one that a connect would reach. This
// also finds a listener that calls the path by another name: bound relative to
// its working directory, or seen through another mount.
//
// A listener of that name counts as well where its file cannot be compared:
// nothing is at the path any more (the socket was unlinked, and its process is
// alive), or the file system gives stat(2) other device numbers than it has
// itself (btrfs, some overlays). Of several, the one with the highest inode
// number is taken, most likely the newest. On the same device with another
// inode it is not this path's: its file was replaced.
type listenerFinder struct {
	procfs string
	diag   sockdiag.Conn
}

// find returns the listener of p, and what the table of sockets has about its
// name; found is false when there is no listener.
func (f *listenerFinder) find(ctx context.Context, p socketPlace) (l sockdiag.Socket, t sockdiag.Table, found bool, err error) {
	t, err = sockdiag.ReadTable(ctx, f.procfs, p.names)
	if err != nil {
		return sockdiag.Socket{}, sockdiag.Table{}, false, err
	}
	var named []sockdiag.Socket
	for _, inode := range t.Listeners[:min(len(t.Listeners), listenersMax)] {
		s, err := f.diag.One(ctx, inode, sockdiag.ShowListener)
		if errors.Is(err, sockdiag.ErrGone) {
			continue // between the two questions
		}
		if err != nil {
			return sockdiag.Socket{}, sockdiag.Table{}, false, err
		}
		if s.Listens() && slices.Contains(p.names, s.Name) {
			named = append(named, s)
		}
	}
	l, found = chooseListener(named, p)
	if found || !p.exists {
		return l, t, found, nil
	}
	// Something is at the path that none of these has bound.
	err = f.diag.All(ctx, 1<<sockdiag.Listening, sockdiag.ShowListener, func(s sockdiag.Socket) {
		if s.Listens() && s.File == p.file {
			l, found = s, true
		}
	})
	if err != nil || !found {
		return sockdiag.Socket{}, t, false, err
	}
	t, err = sockdiag.ReadTable(ctx, f.procfs, []string{l.Name})
	return l, t, err == nil, err
}

// chooseListener takes the one of the listeners named as p that is p's.
func chooseListener(named []sockdiag.Socket, p socketPlace) (best sockdiag.Socket, found bool) {
	for _, s := range named {
		switch {
		case p.exists && s.File == p.file:
			return s, true
		case p.exists && s.File.SameDevice(p.file):
		case !found || s.Inode > best.Inode:
			best, found = s, true
		}
	}
	return best, found
}
