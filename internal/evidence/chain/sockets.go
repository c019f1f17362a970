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
	if err != nil && !errors.Is(err, errManyFDs) {
		return out, !proc.Gone(err)
	}
	if len(inodes) == 0 {
		return out, false
	}
	if w.netns == "" || w.link(strconv.Itoa(pid)+"/ns/net") != w.netns {
		return out, true // sock_diag sees the sockets of plegd's own network namespace
	}
	all := map[uint32]sockdiag.Socket{}
	if err := w.diag.All(ctx, 1<<sockdiag.Established, sockdiag.ShowEnd, func(s sockdiag.Socket) { all[s.Inode] = s }); err != nil {
		return out, true
	}
	for _, inode := range inodes {
		if own, ok := all[inode]; ok && own.Kind == unix.SOCK_STREAM {
			out[inode] = socketPair{own: own, peer: all[own.Peer]}
		}
	}
	return out, false
}

// isLog reports whether a socket is one to which logs are written: nobody waits
// for what they say.
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
func (w *Walker) unreadByPeers(ctx context.Context, f *waiting, before *look) {
	for inode, now := range f.now.unread {
		b, ok := before.unread[inode]
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
	out.next, out.unknown = other(f.pid, pids, complete, p.text())
	if len(pids) == 1 && pids[0] == f.pid {
		return // it talks to itself
	}
	key := link
	if out.next != 0 {
		key = fmt.Sprintf("pid %d", out.next)
	}
	f.add(candidate{key, out})
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
	key := "listener"
	switch {
	case err != nil || len(full) == 0:
		return
	case len(full) > 1:
		out.unknown = fmt.Sprintf("connections wait at %d listeners, and at which of them its own does cannot be seen", len(full))
	default:
		name := "socket " + clean(full[0].Name)
		out.evidence += fmt.Sprintf(" at %s, where %d wait", name, full[0].RQueue)
		pids, complete := w.holdersOf(ctx, fmt.Sprintf("socket:[%d]", full[0].Inode), nil)
		if len(pids) == 2 && pids[0] == 1 {
			pids = pids[1:] // systemd keeps the sockets that it made
		}
		out.next, out.unknown = other(f.pid, pids, complete, name)
		if out.next != 0 {
			key = fmt.Sprintf("pid %d", out.next)
		}
	}
	f.add(candidate{key, out})
}

// busNames are the sockets by which runc asks systemd for a cgroup.
var busNames = []string{"/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket", "/run/systemd/private"}

// services adds the service at the other end of a helper's connection to the system
// bus, or systemd behind it, where that one is stopped, frozen or in D: what was
// sent to it may have been read before.
func (w *Walker) services(ctx context.Context, f *waiting) {
	for _, p := range f.now.unread {
		if !slices.Contains(busNames, p.nameOf()) {
			continue
		}
		pids, _ := w.holdersOf(ctx, fmt.Sprintf("socket:[%d]", p.own.Peer), nil)
		for _, pid := range append(pids, 1) {
			s, err := w.reader.Stat(w.procfs, pid)
			if err != nil || pid == f.pid {
				continue
			}
			before, now, ok := w.twoLooks(ctx, s)
			if !ok {
				continue
			}
			_, held := w.held(before, now)
			for _, t := range still(before, now) {
				held = held || t.tid == pid && t.state == 'D'
			}
			if held {
				f.add(candidate{fmt.Sprintf("pid %d", pid), wait{
					state: health.LinkPeer, evidence: fmt.Sprintf("has a connection to %s, and pid %d (%s) does not run", p.text(), pid, clean(s.Comm)), next: pid,
				}})
			}
		}
	}
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
func (w *Walker) descriptorWait(ctx context.Context, f *waiting, tid int, call proc.Syscall, writes bool) {
	to := w.fd(f.pid, call.Args[0])
	verb := "reads from"
	if writes {
		verb = "writes to"
	}
	switch {
	case strings.HasPrefix(to, "pipe:["):
		w.pipeWait(ctx, f, tid, to, verb, writes)
	case strings.HasPrefix(to, "socket:["):
		inode, _ := proc.SocketInode(to)
		p, ok := f.now.unread[inode]
		if !ok {
			f.doubts = append(f.doubts, fmt.Sprintf("thread %d %s a socket that is no unix stream", tid, verb))
			return
		}
		if !writes && !f.single || p.own.Peer == 0 { // without a peer it is not accepted yet, or closed
			f.doubts = append(f.doubts, fmt.Sprintf("thread %d %s %s", tid, verb, p.text()))
			return
		}
		w.peerWait(ctx, f, p, fmt.Sprintf("thread %d %s %s", tid, verb, p.text()))
	case strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "/dev/pts/") && !strings.HasPrefix(to, "/dev/tty"):
		if channel := w.channel(f.pid, tid); isRemoteChannel(channel) {
			f.add(w.fileWait(ctx, f.pid, tid, channel, call, true))
			return
		}
		w.fifoWait(ctx, f, tid, to, verb, writes)
	case to == "":
		f.denied = true
	default:
		f.doubts = append(f.doubts, fmt.Sprintf("thread %d %s %s", tid, verb, clean(to)))
	}
}

// fifoWait follows a thread that sleeps on a path which a pipe has.
func (w *Walker) fifoWait(ctx context.Context, f *waiting, tid int, to, verb string, writes bool) {
	if channel := w.channel(f.pid, tid); !strings.Contains(channel, "pipe_") {
		f.doubts = append(f.doubts, fmt.Sprintf("thread %d %s %s", tid, verb, clean(to)))
		return
	}
	w.pipeWait(ctx, f, tid, to, verb, writes)
}

// pipeWait adds the process at the other end of a pipe.
func (w *Walker) pipeWait(ctx context.Context, f *waiting, tid int, to, verb string, writes bool) {
	if !writes && !f.single {
		f.doubts = append(f.doubts, fmt.Sprintf("thread %d %s a pipe", tid, verb))
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
	out := wait{state: health.LinkPeer, evidence: fmt.Sprintf("thread %d %s %s", tid, verb, clean(to))}
	out.next, out.unknown = other(f.pid, pids, complete, "the pipe")
	if len(pids) == 1 && pids[0] == f.pid { // it waits for itself
		out.unknown, out.state = "", health.LinkAsleep
		out.evidence += ", of which only it holds the other end"
	}
	key := to
	if out.next != 0 {
		key = fmt.Sprintf("pid %d", out.next)
	}
	f.add(candidate{key, out})
}
