package chain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
	"github.com/plegd/plegd/internal/health"
)

// sockets returns the connected unix sockets of a process, by the inode of its own
// end; denied is true where they cannot be seen.
func (w *Walker) sockets(ctx context.Context, pid int) (out map[uint32]socketPair, denied bool) {
	out = map[uint32]socketPair{}
	var inodes []uint32
	err := w.eachFDOf(pid, func(_ int, _, to string) {
		if inode, ok := proc.SocketInode(to); ok {
			inodes = append(inodes, inode)
		}
	})
	if err != nil && !errors.Is(err, proc.ErrManyFDs) {
		return out, !proc.Gone(err)
	}
	if len(inodes) == 0 {
		return out, false
	}
	if w.netns == "" || w.link(strconv.Itoa(pid)+"/ns/net") != w.netns {
		return out, true // sock_diag sees the sockets of plegd's own network namespace
	}
	all := map[uint32]sockdiag.Socket{}
	err = w.diag.All(ctx, 1<<sockdiag.Established, sockdiag.ShowEnd, func(s sockdiag.Socket) { all[s.Inode] = s })
	if err != nil {
		return out, true
	}
	for _, inode := range inodes {
		if own, ok := all[inode]; ok && own.Kind == unix.SOCK_STREAM {
			out[inode] = socketPair{own: own, peer: all[own.Peer]}
		}
	}
	return out, false
}

// isLog reports whether a socket is one to which logs are written: no answer is awaited.
func isLog(name string) bool {
	return strings.HasPrefix(name, "/run/systemd/journal/") || name == "/dev/log" || strings.Contains(name, "syslog")
}

// nameOf is the path by which a connection was made, "" where neither end has one.
func (p socketPair) nameOf() string {
	if p.peer.Name != "" {
		return p.peer.Name
	}
	return p.own.Name
}

func (p socketPair) text() string {
	if name := p.nameOf(); name != "" {
		return "socket " + clean(name)
	}
	return "a socket without a name"
}

// fullBuffer is how much memory of a socket's usual send buffer (212,992 bytes) what
// is unread must take for a server to wait for the client.
const fullBuffer = 64 << 10

// unreadByPeers adds the processes that leave unread what this one has sent.
func (w *Walker) unreadByPeers(ctx context.Context, f *waiting) {
	for inode, now := range f.now.unread {
		b, ok := f.before.unread[inode]
		if !ok || isLog(now.nameOf()) {
			continue
		}
		switch {
		case now.own.Name != "" && now.own.WQueue < fullBuffer:
			// It is the server's end: a client that reads late holds up nobody until
			// there is no room left for what it is sent.
		case now.peer.Inode != 0 && b.peer.Cookie == now.peer.Cookie && b.peer.RQueue > 0 && now.peer.RQueue >= b.peer.RQueue:
			w.peerWait(ctx, f, now, fmt.Sprintf("%d bytes that it has sent wait unread at the other end of %s", now.peer.RQueue, now.text()))
		case now.own.Peer == 0 && b.own.Peer == 0 && b.own.WQueue > 0 && now.own.WQueue >= b.own.WQueue && now.own.Name == "":
			w.acceptWait(ctx, f, now)
		}
	}
}

// peerWait adds the process at the other end of a socket.
func (w *Walker) peerWait(ctx context.Context, f *waiting, p socketPair, evidence string) {
	out := wait{state: health.LinkPeer, evidence: evidence}
	link := fmt.Sprintf("socket:[%d]", p.own.Peer)
	pids, complete := w.holdersOf(ctx, link, nil)
	out.next, out.unknown = w.other(f.pid, pids, complete, p.text())
	if len(pids) == 1 && pids[0] == f.pid {
		return // it talks to itself
	}
	f.add(candidate{keyOf(out.next, link), out})
}

// acceptWait adds the process that does not accept a connection. sock_diag does not
// say at which listener it waits: it is known where one only has any waiting.
func (w *Walker) acceptWait(ctx context.Context, f *waiting, p socketPair) {
	var full []sockdiag.Socket
	err := w.diag.All(ctx, 1<<sockdiag.Listening, sockdiag.ShowListener, func(s sockdiag.Socket) {
		if s.Listens() && s.RQueue > 0 {
			full = append(full, s)
		}
	})
	out := wait{state: health.LinkPeer, evidence: fmt.Sprintf("a connection of it, with %d bytes of memory sent, is not accepted", p.own.WQueue)}
	switch {
	case err != nil || len(full) == 0:
		return
	case len(full) > 1:
		out.unknown = fmt.Sprintf("connections wait at %d listeners, and at which of them its own does cannot be seen", len(full))
	default:
		name := "socket " + clean(full[0].Name)
		out.evidence += fmt.Sprintf(" at %s, where %d wait", name, full[0].RQueue)
		pids, complete := w.holdersOf(ctx, fmt.Sprintf("socket:[%d]", full[0].Inode), nil)
		out.next, out.unknown = w.other(f.pid, pids, complete, name)
	}
	f.add(candidate{keyOf(out.next, "listener"), out})
}

// busNames are the sockets by which runc asks systemd for a cgroup.
var busNames = []string{"/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket", "/run/systemd/private"}

// services adds the service at the other end of a helper's connection to the system
// bus, or systemd behind it, where that one is stopped, frozen or in D: it may have read
// the request before.
func (w *Walker) services(ctx context.Context, f *waiting) {
	if w.kindOf(ctx, f.now.stat) != health.KindHelper {
		return
	}
	for _, p := range f.now.unread {
		if !slices.Contains(busNames, p.nameOf()) {
			continue
		}
		pids, _ := w.holdersOf(ctx, fmt.Sprintf("socket:[%d]", p.own.Peer), nil)
		for _, pid := range append(pids, 1) {
			s, err := w.reader.Stat(w.procfs, pid)
			if err != nil || pid == f.pid || !w.standsStill(ctx, s) {
				continue
			}
			f.add(candidate{fmt.Sprintf("pid %d", pid), wait{
				state: health.LinkPeer, next: pid,
				evidence: fmt.Sprintf("has a connection to %s, and pid %d (%s) does not run", p.text(), pid, clean(s.Comm)),
			}})
		}
	}
}

// standsStill reports whether a process is stopped, traced or frozen, or its first thread
// in D.
func (w *Walker) standsStill(ctx context.Context, s proc.Stat) bool {
	before, now, ok := w.twoLooks(ctx, s)
	if !ok {
		return false
	}
	if _, held := w.held(before, now); held {
		return true
	}
	return slices.ContainsFunc(still(before, now), func(t thread) bool { return t.tid == s.PID && t.state == 'D' })
}

// unreadOf says what a process leaves unread itself, "" for nothing.
func unreadOf(before, now *look) string {
	for inode, n := range now.unread {
		b, ok := before.unread[inode]
		if ok && b.own.Cookie == n.own.Cookie && b.own.RQueue > 0 && n.own.RQueue >= b.own.RQueue {
			return fmt.Sprintf("leaves %d bytes unread on %s", n.own.RQueue, n.text())
		}
	}
	return ""
}

// descriptorWait follows a thread that sleeps in a read or write.
func (w *Walker) descriptorWait(ctx context.Context, f *waiting, p place, writes bool) {
	to := w.fd(f.pid, p.call.Args[0])
	what := fmt.Sprintf("thread %d reads from", p.tid)
	if writes {
		what = fmt.Sprintf("thread %d writes to", p.tid)
	}
	switch {
	case strings.HasPrefix(to, "pipe:["), strings.HasPrefix(to, "/") && strings.Contains(p.channel, "pipe_"):
		w.pipeWait(ctx, f, to, what, writes)
	case strings.HasPrefix(to, "socket:["):
		inode, _ := proc.SocketInode(to)
		s, ok := f.now.unread[inode]
		if !ok {
			f.doubt("%s a socket that is no unix stream", what)
			return
		}
		if !writes && !f.single || s.own.Peer == 0 { // without a peer it is not accepted yet, or closed
			f.doubt("%s %s", what, s.text())
			return
		}
		w.peerWait(ctx, f, s, what+" "+s.text())
	case to == "":
		f.denied = true
	case !writes && (to == "/dev/fuse" || strings.HasPrefix(to, "anon_inode:")):
		f.calls["read of "+clean(to)]++ // a server that waits for its next request
	case writes && !proc.IdleChannel(p.channel):
		f.kernel = append(f.kernel, kernelWait(p))
	default:
		f.doubt("%s %s", what, clean(to))
	}
}

// pipeWait adds the process at the other end of a pipe.
func (w *Walker) pipeWait(ctx context.Context, f *waiting, to, what string, writes bool) {
	if !writes && !f.single {
		f.doubt("%s a pipe", what)
		return
	}
	pids, complete := w.holdersOf(ctx, to, func(pid int, fd string) bool {
		n, err := strconv.ParseUint(fd, 10, 64)
		if err != nil {
			return false
		}
		mode := w.fdInfo(pid, n).Flags & unix.O_ACCMODE
		if writes {
			return mode == unix.O_RDONLY || mode == unix.O_RDWR
		}
		return mode == unix.O_WRONLY || mode == unix.O_RDWR
	})
	out := wait{state: health.LinkPeer, evidence: what + " " + clean(to)}
	out.next, out.unknown = w.other(f.pid, pids, complete, "the pipe")
	if len(pids) == 1 && pids[0] == f.pid { // it waits for itself
		out.unknown, out.state = "", health.LinkAsleep
		out.evidence += ", of which only it holds the other end"
	}
	f.add(candidate{keyOf(out.next, to), out})
}

// keyOf is the key of a wait for a process, or for something that is known by name only.
func keyOf(pid int, name string) string {
	if pid != 0 {
		return fmt.Sprintf("pid %d", pid)
	}
	return name
}
