package evidence

import (
	"context"
	"net"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
)

const (
	// systemContainerd is the containerd that dockerd takes when it is there and
	// nothing else is configured.
	systemContainerd = "/run/containerd/containerd.sock"
	// containerdAgain is how often the address is looked for again, containerdSoon
	// how often while it is not known.
	containerdAgain = 30 * time.Second
	containerdSoon  = 2 * time.Second
	// dockerdSockets is how many of dockerd's sockets are asked about: those to
	// its containerd are among the first that it opens.
	dockerdSockets = 128
	// peerTimeout limits the connection by which a process is learned.
	peerTimeout = 200 * time.Millisecond
)

// containerdFinder finds the containerd that dockerd leaves its containers to.
// dockerd says where it is by, in this order, its open connections
// (/proc/PID/fd and sock_diag, which needs CAP_SYS_PTRACE), its --containerd
// argument, and the containerd that it has started as a child, whose socket is
// beside its configuration; else it takes the system's where there is one.
// The process is that child, else the one that listens at the address.
type containerdFinder struct {
	procfs string
	table  *node.Table
	diag   sockdiag.Conn
	reader proc.Reader

	address atomic.Pointer[string]
	process atomic.Int64

	child    proc.ID
	dialed   uint32 // the listener whose process is known by a connection
	dockerd  proc.ID
	searched time.Time
}

func newContainerdFinder(table *node.Table, procfs string) *containerdFinder {
	return &containerdFinder{procfs: procfs, table: table}
}

// socket is the address of dockerd's containerd, "" while it is not known.
func (f *containerdFinder) socket() string {
	if p := f.address.Load(); p != nil {
		return *p
	}
	return ""
}

// pid is that containerd, 0 while it is not known.
func (f *containerdFinder) pid() int { return int(f.process.Load()) }

func (f *containerdFinder) forget() {
	f.address.Store(nil)
	f.process.Store(0)
	f.child, f.dialed, f.dockerd, f.searched = proc.ID{}, 0, proc.ID{}, time.Time{}
}

// find looks for the containerd of dockerd's process, unless it has just done
// so.
func (f *containerdFinder) find(ctx context.Context, dockerd int) {
	s, err := f.reader.Stat(f.procfs, dockerd)
	if err != nil {
		return
	}
	every := containerdAgain
	if f.socket() == "" || !f.alive() {
		every = containerdSoon
	}
	if s.ID() == f.dockerd && time.Since(f.searched) < every {
		return
	}
	f.dockerd, f.searched = s.ID(), time.Now()
	f.child = f.childOf(ctx, dockerd)
	if address := f.search(ctx, s.ID(), f.child); address != "" {
		f.address.Store(&address)
	}
	switch {
	case f.child.PID != 0:
		f.process.Store(int64(f.child.PID))
	case f.socket() != "":
		f.askPeer(ctx)
	}
}

// askPeer learns the process that listens at the address by one connection, made
// once for each listener and closed at once. None is made while others wait to
// be accepted there.
func (f *containerdFinder) askPeer(ctx context.Context) {
	l, ok := f.listener(ctx, f.socket())
	if !ok || l.RQueue > 0 || l.Inode == f.dialed {
		return
	}
	dialer := net.Dialer{Timeout: peerTimeout}
	conn, err := dialer.DialContext(ctx, "unix", f.socket())
	if err != nil {
		return
	}
	f.dialed = l.Inode
	f.process.Store(int64(cri.PeerPID(conn)))
	_ = conn.Close()
}

// alive reports whether the process that was found still runs.
func (f *containerdFinder) alive() bool {
	pid := f.pid()
	if pid == 0 {
		return false
	}
	s, err := f.reader.Stat(f.procfs, pid)
	return err == nil && !s.Dead() && (f.child.PID == 0 || s.ID() == f.child)
}

func (f *containerdFinder) search(ctx context.Context, dockerd, child proc.ID) string {
	if address := f.connected(ctx, dockerd.PID); address != "" {
		return address
	}
	if address := proc.ArgValue(f.table.Args(dockerd), "containerd"); path.IsAbs(strings.TrimPrefix(address, "unix://")) {
		return strings.TrimPrefix(address, "unix://")
	}
	if config := proc.ArgValue(f.table.Args(child), "config"); path.IsAbs(config) {
		return path.Join(path.Dir(config), "containerd.sock")
	}
	if child.PID == 0 && f.listens(ctx, systemContainerd) {
		return systemContainerd
	}
	return ""
}

// connected returns the address of a containerd that dockerd has a connection
// to.
func (f *containerdFinder) connected(ctx context.Context, dockerd int) string {
	var inodes []uint32
	_ = proc.EachSocket(f.procfs, dockerd, func(inode uint32) bool {
		inodes = append(inodes, inode)
		return len(inodes) < dockerdSockets && ctx.Err() == nil
	}) // without the privilege there are none
	for _, inode := range inodes {
		own, err := f.diag.One(ctx, inode, sockdiag.ShowPeer)
		if err != nil || own.State != sockdiag.Established || own.Kind != unix.SOCK_STREAM || own.Peer == 0 {
			continue
		}
		// The server's end has the name of the socket that it was accepted on.
		server, err := f.diag.One(ctx, own.Peer, sockdiag.ShowName)
		if err == nil && isContainerdSocket(server.Name) {
			return server.Name
		}
	}
	return ""
}

func isContainerdSocket(name string) bool {
	base := path.Base(name)
	return path.IsAbs(name) && strings.Contains(base, "containerd") && strings.HasSuffix(base, ".sock")
}

// listens reports whether a socket listens under a name.
func (f *containerdFinder) listens(ctx context.Context, name string) bool {
	_, ok := f.listener(ctx, name)
	return ok
}

// listener returns the socket that listens under a name.
func (f *containerdFinder) listener(ctx context.Context, name string) (l sockdiag.Socket, ok bool) {
	l, ok, err := (&listenerFinder{}).find(ctx, name)
	return l, ok && err == nil
}

// childOf returns the containerd that is a child of dockerd.
func (f *containerdFinder) childOf(ctx context.Context, dockerd int) proc.ID {
	all, err := f.table.Processes(ctx, containerdSoon)
	if err != nil {
		return proc.ID{}
	}
	for _, s := range all.Children(dockerd) {
		if s.Comm == "containerd" {
			return s.ID()
		}
	}
	return proc.ID{}
}

// dockerSocket returns the path of dockerd's socket: that of cri-dockerd's
// --docker-endpoint, else the default.
func dockerSocket(table *node.Table, criDockerd int, otherwise string) string {
	p, err := table.Alive(criDockerd)
	if err != nil || criDockerd == 0 {
		return otherwise
	}
	socket, isURL := strings.CutPrefix(proc.ArgValue(table.Args(p.ID()), "docker-endpoint"), "unix://")
	if !isURL && strings.Contains(socket, "://") || !path.IsAbs(socket) {
		return otherwise
	}
	return path.Clean(socket)
}
