package evidence

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	// listenersMax limits the listeners of one name that are asked about. There
	// is one, and while a runtime restarts two.
	listenersMax = 16
	showListener = showName | showVFS | showRQLen
)

// listenerFinder finds the listening socket behind a path.
//
// Several listeners may be bound to one name: unlinking the file and binding
// anew leaves the old one listening, where nobody can connect to it. connect(2)
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
	diag   diagConn
}

// find returns the listener of p, and what the table of sockets has about its
// name; found is false when there is no listener.
func (f *listenerFinder) find(ctx context.Context, p socketPlace) (l diagSocket, t unixTable, found bool, err error) {
	t, err = readUnixTable(ctx, f.procfs, p.names)
	if err != nil {
		return diagSocket{}, unixTable{}, false, err
	}
	var named []diagSocket
	for _, inode := range t.listeners[:min(len(t.listeners), listenersMax)] {
		s, err := f.diag.one(ctx, inode, showListener)
		if errors.Is(err, errSocketGone) {
			continue // between the two questions
		}
		if err != nil {
			return diagSocket{}, unixTable{}, false, err
		}
		if s.listens() && slices.Contains(p.names, s.name) {
			named = append(named, s)
		}
	}
	l, found = chooseListener(named, p)
	if found || !p.exists {
		return l, t, found, nil
	}
	// Something is at the path that none of these has bound.
	err = f.diag.all(ctx, 1<<stateListen, showListener, func(s diagSocket) {
		if s.listens() && s.file == p.file {
			l, found = s, true
		}
	})
	if err != nil || !found {
		return diagSocket{}, t, false, err
	}
	t, err = readUnixTable(ctx, f.procfs, []string{l.name})
	return l, t, err == nil, err
}

func (s diagSocket) listens() bool { return s.state == stateListen && s.kind == unix.SOCK_STREAM }

// chooseListener takes the one of the listeners named as p that is p's.
func chooseListener(named []diagSocket, p socketPlace) (best diagSocket, found bool) {
	for _, s := range named {
		switch {
		case p.exists && s.file == p.file:
			return s, true
		case p.exists && s.file.sameDevice(p.file):
		case !found || s.inode > best.inode:
			best, found = s, true
		}
	}
	return best, found
}
