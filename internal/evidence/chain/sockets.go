package chain

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// connection is a connected unix or TCP socket of a process.
type connection struct {
	peer   uint32 // the inode of the other end; 0 while that is not accepted, or gone
	name   string // path or address of the server's end, "" where it has none
	server bool   // the process has the server's end
	// sent is what the other end has not read, in bytes of memory for a unix socket;
	// unread are the bytes of it that it could read, own those that the process could.
	sent, unread, own uint32
	// listener is where a TCP connection is accepted; remote is true on another node.
	listener uint32
	remote   bool
}

func (c connection) text() string {
	if c.name != "" {
		return "socket " + c.name
	}
	return "a socket without a name"
}

// isLog reports whether a socket is one to which logs are written: no answer is awaited.
func (c connection) isLog() bool {
	return strings.HasPrefix(c.name, "/run/systemd/journal/") || c.name == "/dev/log" || strings.Contains(c.name, "syslog")
}

// connections returns the connected sockets of a process, by inode.
func (w *Walker) connections(ctx context.Context, pid int) map[uint32]connection {
	out, inodes := map[uint32]connection{}, map[uint32]bool{}
	err := node.EachFD(w.procfs, pid, func(_ int, to string) bool {
		if inode, ok := node.SocketInode(to); ok {
			inodes[inode] = true
		}
		return true
	})
	if err != nil {
		w.denied = w.denied || !node.Gone(err)
		return out
	}
	if len(inodes) == 0 {
		return out
	}
	tcp(node.Path(w.procfs, pid, ""), inodes, out)
	if ns := w.link("self/ns/net"); ns == "" || ns != w.link(strconv.Itoa(pid)+"/ns/net") {
		w.denied = true // sock_diag sees the sockets of plegd's own network namespace
		return out
	}
	all := map[uint32]node.Socket{}
	err = node.EachSocket(ctx, 1<<node.Established, func(s node.Socket) { all[s.Inode] = s })
	w.denied = w.denied || err != nil
	for inode := range inodes {
		if own, ok := all[inode]; ok && own.Kind == unix.SOCK_STREAM {
			c := connection{peer: own.Peer, name: own.Name, server: own.Name != "", sent: own.WQueue, own: own.RQueue}
			if peer := all[own.Peer]; peer.Inode != 0 {
				c.unread = peer.RQueue
				if peer.Name != "" {
					c.name = peer.Name
				}
			}
			out[inode] = c
		}
	}
	return out
}

// tcpSynSent is a state of /proc/net/tcp (include/net/tcp_states.h) beside those of sockdiag.
const tcpSynSent = 2

// tcp adds the TCP connections of some inodes, by the files of a process about its network
// namespace.
func tcp(dir string, inodes map[uint32]bool, out map[uint32]connection) {
	fs, err := procfs.NewFS(dir)
	if err != nil {
		return
	}
	address := func(ip net.IP, port uint64) string {
		return net.JoinHostPort(ip.String(), strconv.FormatUint(port, 10))
	}
	for _, read := range []func() (procfs.NetTCP, error){fs.NetTCP, fs.NetTCP6} { //nolint:staticcheck // on demand only
		lines, _ := read() // without IPv6 there is no file
		ends, listeners := map[string]int{}, map[uint64]uint32{}
		for i, l := range lines {
			switch l.St {
			case node.Listening:
				listeners[l.LocalPort] = uint32(l.Inode) //nolint:gosec // inodes of sockets have 32 bits
			case node.Established, tcpSynSent:
				ends[address(l.LocalAddr, l.LocalPort)+" "+address(l.RemAddr, l.RemPort)] = i
			}
		}
		for _, i := range ends {
			l := lines[i]
			inode := uint32(l.Inode) //nolint:gosec // likewise
			if !inodes[inode] {
				continue
			}
			local, remote := address(l.LocalAddr, l.LocalPort), address(l.RemAddr, l.RemPort)
			c := connection{name: remote, own: uint32(l.RxQueue), listener: listeners[l.RemPort]} //nolint:gosec // of 32 bits
			if at, ok := ends[remote+" "+local]; ok {
				c.peer, c.unread = uint32(lines[at].Inode), uint32(lines[at].RxQueue) //nolint:gosec // likewise
				c.sent = c.unread
			} else {
				c.remote = l.St == node.Established || c.listener == 0
			}
			_, c.server = listeners[l.LocalPort]
			out[inode] = c
		}
	}
}

// fullBuffer is how much memory of a socket's usual send buffer (212,992 bytes) unread
// data must take for a server to wait for the client.
const fullBuffer = 64 << 10

// unreadByPeers adds the processes that leave unread what this one has sent.
func (w *Walker) unreadByPeers(ctx context.Context, f *waiting) {
	for inode, now := range f.now.sockets {
		b, ok := f.before.sockets[inode]
		switch {
		case !ok || now.isLog() || now.remote || b.peer != now.peer:
		case now.server && now.sent < fullBuffer:
			// It is the server's end: a client that reads late holds up nobody until
			// there is no room left for data to it.
		case now.peer != 0 && b.unread > 0 && now.unread >= b.unread:
			w.peerWait(ctx, f, now, fmt.Sprintf("%d bytes that it has sent wait unread at the other end of %s",
				now.unread, now.text()))
		case now.peer == 0 && !now.server && (b.sent > 0 && now.sent >= b.sent || now.listener != 0):
			w.acceptWait(ctx, f, "a connection of it is not accepted", now.listener, false)
		}
	}
}

// socketHolder is holder for a socket.
func (w *Walker) socketHolder(ctx context.Context, pid int, what string, inode uint32) (int, string) {
	link := fmt.Sprintf("socket:[%d]", inode)
	return w.holder(ctx, pid, what, func(to string, _ func() node.FDInfo) bool { return to == link })
}

// peerWait adds the process at the other end of a connection, unless it is the same.
func (w *Walker) peerWait(ctx context.Context, f *waiting, c connection, evidence string) {
	if next, unknown := w.socketHolder(ctx, f.pid, c.text(), c.peer); next != f.pid {
		key := fmt.Sprintf("socket %d", c.peer)
		f.add(wait{key: key, state: health.LinkPeer, evidence: evidence, next: next, unknown: unknown})
	}
}

// acceptWait adds the process that does not accept a connection. sock_diag does not
// name the unix listener at which it waits: it is known where only one has any waiting,
// or more than its limit where full is true.
func (w *Walker) acceptWait(ctx context.Context, f *waiting, evidence string, listener uint32, full bool) {
	out := wait{key: "listener", state: health.LinkPeer, evidence: evidence}
	at := []node.Socket{{Inode: listener}}
	if listener == 0 {
		at = nil
		err := node.EachSocket(ctx, 1<<node.Listening, func(s node.Socket) {
			if s.Listens() && (s.RQueue > s.WQueue || s.RQueue > 0 && !full) {
				at = append(at, s)
			}
		})
		if err != nil || len(at) == 0 {
			return
		}
	}
	if len(at) > 1 {
		out.unknown = fmt.Sprintf("connections wait at %d listeners, and the one of its own cannot be seen", len(at))
	} else {
		name := "its listener"
		if at[0].Name != "" {
			name = "socket " + at[0].Name
			out.evidence += fmt.Sprintf(" at %s, where %d wait", name, at[0].RQueue)
		}
		out.next, out.unknown = w.socketHolder(ctx, f.pid, name, at[0].Inode)
	}
	f.add(out)
}

// busNames are the sockets by which runc asks systemd for a cgroup.
var busNames = []string{"/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket", "/run/systemd/private"}

// answers adds the process whose answer a helper waits for, where no thread shows it: a
// program in Go waits in epoll(7), and the peer may have read the request. It is the one
// at the other end of its only connection, else one that stands still; behind the system
// bus that may be systemd.
func (w *Walker) answers(ctx context.Context, f *waiting) {
	if w.kindOf(ctx, f.now.stat) != health.KindHelper {
		return
	}
	names, still := map[int]string{}, []int{}
	for _, c := range f.now.sockets {
		if c.isLog() || c.server || c.name == "" || c.peer == 0 {
			continue
		}
		pid, _ := w.socketHolder(ctx, f.pid, c.text(), c.peer)
		names[pid] = c.text()
		if slices.Contains(busNames, c.name) {
			names[1] = c.text()
		}
	}
	for pid := range names {
		if len(names) == 1 && pid != 0 || w.standsStill(ctx, pid) {
			still = append(still, pid)
		}
	}
	slices.Sort(still)
	for _, pid := range still {
		f.add(wait{
			state: health.LinkPeer, next: pid, evidence: "waits for nothing else, and has a connection to " + names[pid],
		})
	}
}

// standsStill reports whether a process is stopped, traced or frozen, or its first thread
// in D.
func (w *Walker) standsStill(ctx context.Context, pid int) bool {
	defer func(denied bool) { w.denied = denied }(w.denied) // of another process
	l, ok := w.look(ctx, pid)
	if !ok {
		return false
	}
	_, held := w.held(l)
	return held || slices.ContainsFunc(l.still(), func(t thread) bool { return t.tid == pid && t.state == 'D' })
}

// unread returns what a process leaves unread itself, "" for nothing.
func (l looks) unread() string {
	for inode, n := range l.now.sockets {
		if b, ok := l.before.sockets[inode]; ok && b.own > 0 && n.own >= b.own {
			return fmt.Sprintf("leaves %d bytes unread on %s", n.own, n.text())
		}
	}
	return ""
}

// descriptorWait follows a thread that sleeps in a read or write.
func (w *Walker) descriptorWait(ctx context.Context, f *waiting, p place, writes bool) {
	to := w.fd(f.pid, p.call.FD())
	text := fmt.Sprintf("thread %d reads from", p.tid)
	if writes {
		text = fmt.Sprintf("thread %d writes to", p.tid)
	}
	inode, socket := node.SocketInode(to)
	c, known := f.now.sockets[inode]
	certain := writes || f.single()
	switch {
	case to == "":
		w.denied = true
	case strings.HasPrefix(to, "pipe:["), strings.HasPrefix(to, "/") && strings.Contains(p.channel, "pipe_"):
		if !certain {
			f.doubt("%s a pipe", text)
			return
		}
		w.pipeWait(ctx, f, to, text, writes)
	case socket && !known:
		f.doubt("%s a socket that is neither unix nor TCP", text)
	case socket && c.remote && certain:
		f.add(wait{key: to, state: health.LinkPeer, evidence: text + " " + c.text() + ", on another node"})
	case socket && (!certain || c.peer == 0): // without a peer it is not accepted yet, or closed
		f.doubt("%s %s", text, c.text())
	case socket:
		w.peerWait(ctx, f, c, text+" "+c.text())
	case !writes && (to == "/dev/fuse" || strings.HasPrefix(to, "anon_inode:")):
		f.calls["read of "+to]++ // a server that waits for its next request
	case writes && !node.IdleChannel(p.channel):
		f.kernel = append(f.kernel, kernelWait(p))
	default:
		f.doubt("%s %s", text, to)
	}
}

// pipeWait adds the process at the other end of a pipe.
func (w *Walker) pipeWait(ctx context.Context, f *waiting, to, text string, writes bool) {
	out := wait{key: to, state: health.LinkPeer, evidence: text + " " + to}
	out.next, out.unknown = w.holder(ctx, f.pid, "the pipe", func(at string, info func() node.FDInfo) bool {
		if at != to {
			return false
		}
		mode := info().Flags & unix.O_ACCMODE
		return mode == unix.O_RDWR || writes == (mode == unix.O_RDONLY)
	})
	if out.next == f.pid { // it waits for itself
		out.next, out.state = 0, health.LinkAsleep
		out.evidence += ", of which only it holds the other end"
	}
	f.add(out)
}
