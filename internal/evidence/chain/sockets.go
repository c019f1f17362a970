package chain

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
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
		return "socket " + clean(c.name)
	}
	return "a socket without a name"
}

// isLog reports whether a socket is one to which logs are written: no answer is awaited.
func (c connection) isLog() bool {
	return strings.HasPrefix(c.name, "/run/systemd/journal/") || c.name == "/dev/log" || strings.Contains(c.name, "syslog")
}

// connections returns the connected sockets of a process, by inode; denied is true where
// they cannot be seen.
func (w *Walker) connections(ctx context.Context, pid int) (out map[uint32]connection, denied bool) {
	out = map[uint32]connection{}
	inodes := map[uint32]bool{}
	err := proc.EachSocket(w.procfs, pid, func(inode uint32) bool {
		inodes[inode] = true
		return true
	})
	if err != nil && !errors.Is(err, proc.ErrManyFDs) {
		return out, !proc.Gone(err)
	}
	if len(inodes) == 0 {
		return out, false
	}
	for _, file := range []string{"net/tcp", "net/tcp6"} {
		w.tcp(proc.Path(w.procfs, pid, file), inodes, out)
	}
	if w.netns == "" || w.link(strconv.Itoa(pid)+"/ns/net") != w.netns {
		return out, true // sock_diag sees the sockets of plegd's own network namespace
	}
	all := map[uint32]sockdiag.Socket{}
	err = sockdiag.Each(ctx, 1<<sockdiag.Established, func(s sockdiag.Socket) { all[s.Inode] = s })
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
	return out, err != nil
}

// The states of /proc/net/tcp (include/net/tcp_states.h).
const (
	tcpEstablished = "01"
	tcpSynSent     = "02"
	tcpListen      = "0A"
)

// tcp adds the TCP connections of some inodes by a file like /proc/net/tcp, which is about
// one network namespace.
func (w *Walker) tcp(file string, inodes map[uint32]bool, out map[uint32]connection) {
	const local, remote, state, queues, inode = 1, 2, 3, 4, 9
	b, err := proc.ReadFile(file)
	if err != nil {
		return
	}
	port := func(address string) string { return address[strings.IndexByte(address, ':')+1:] }
	number := func(f []string) uint32 { n, _ := strconv.ParseUint(f[inode], 10, 32); return uint32(n) }
	unread := func(f []string) uint32 {
		_, rx, _ := strings.Cut(f[queues], ":")
		n, _ := strconv.ParseUint(rx, 16, 32)
		return uint32(n)
	}
	ends, listeners := map[string][]string{}, map[string]uint32{}
	for line := range strings.Lines(string(b)) {
		switch f := strings.Fields(line); {
		case len(f) <= inode:
		case f[state] == tcpListen:
			listeners[port(f[local])] = number(f)
		case f[state] == tcpEstablished, f[state] == tcpSynSent:
			ends[f[local]+" "+f[remote]] = f
		}
	}
	for _, f := range ends {
		if !inodes[number(f)] {
			continue
		}
		c := connection{name: tcpAddress(f[remote]), own: unread(f), listener: listeners[port(f[remote])]}
		if peer := ends[f[remote]+" "+f[local]]; peer != nil {
			c.peer, c.unread, c.sent = number(peer), unread(peer), unread(peer)
		} else {
			c.remote = f[state] == tcpEstablished || c.listener == 0
		}
		_, c.server = listeners[port(f[local])]
		out[number(f)] = c
	}
}

// tcpAddress decodes "0100007F:6DCF": words of 32 bits in the machine's byte order, and
// the port.
func tcpAddress(s string) string {
	text, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(text)
	n, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil || len(b)%4 != 0 {
		return clean(s)
	}
	for i := 0; i < len(b); i += 4 {
		slices.Reverse(b[i : i+4]) // amd64 and arm64 are little-endian
	}
	ip, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)).String()
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

// peerWait adds the process at the other end of a connection.
func (w *Walker) peerWait(ctx context.Context, f *waiting, c connection, evidence string) {
	next, unknown, alone := w.socketHolder(ctx, f.pid, c.text(), c.peer)
	if !alone { // or it talks to itself
		key := fmt.Sprintf("socket %d", c.peer)
		f.add(wait{key: key, state: health.LinkPeer, evidence: evidence, next: next, unknown: unknown})
	}
}

// acceptWait adds the process that does not accept a connection. sock_diag does not
// name the unix listener at which it waits: it is known where only one has any waiting,
// or more than its limit where full is true.
func (w *Walker) acceptWait(ctx context.Context, f *waiting, evidence string, listener uint32, full bool) {
	out := wait{key: "listener", state: health.LinkPeer, evidence: evidence}
	at := []sockdiag.Socket{{Inode: listener}}
	if listener == 0 {
		at = nil
		err := sockdiag.Each(ctx, 1<<sockdiag.Listening, func(s sockdiag.Socket) {
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
			name = "socket " + clean(at[0].Name)
			out.evidence += fmt.Sprintf(" at %s, where %d wait", name, at[0].RQueue)
		}
		out.next, out.unknown, _ = w.socketHolder(ctx, f.pid, name, at[0].Inode)
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
		pid, _, _ := w.socketHolder(ctx, f.pid, c.text(), c.peer)
		names[pid] = c.text()
		if slices.Contains(busNames, c.name) {
			names[1] = c.text()
		}
	}
	for pid := range names {
		if s, err := proc.ReadStat(w.procfs, pid); err == nil && (len(names) == 1 || w.standsStill(ctx, s)) {
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
func (w *Walker) standsStill(ctx context.Context, s proc.Stat) bool {
	l, ok := w.look(ctx, s)
	if !ok {
		return false
	}
	if _, held := w.held(l); held {
		return true
	}
	return slices.ContainsFunc(l.still(), func(t thread) bool { return t.tid == s.PID && t.state == 'D' })
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
	to := w.fd(f.pid, p.call.Args[0])
	text := fmt.Sprintf("thread %d reads from", p.tid)
	if writes {
		text = fmt.Sprintf("thread %d writes to", p.tid)
	}
	switch {
	case to == "":
		f.denied = true
	case strings.HasPrefix(to, "pipe:["), strings.HasPrefix(to, "/") && strings.Contains(p.channel, "pipe_"):
		if !writes && !f.single() {
			f.doubt("%s a pipe", text)
			return
		}
		w.pipeWait(ctx, f, to, text, writes)
	case strings.HasPrefix(to, "socket:["):
		inode, _ := proc.SocketInode(to)
		c, ok := f.now.sockets[inode]
		switch {
		case !ok:
			f.doubt("%s a socket that is neither unix nor TCP", text)
		case c.remote && (writes || f.single()):
			f.add(wait{key: to, state: health.LinkPeer, evidence: text + " " + c.text() + ", on another node"})
		case !writes && !f.single() || c.peer == 0: // without a peer it is not accepted yet, or closed
			f.doubt("%s %s", text, c.text())
		default:
			w.peerWait(ctx, f, c, text+" "+c.text())
		}
	case !writes && (to == "/dev/fuse" || strings.HasPrefix(to, "anon_inode:")):
		f.calls["read of "+clean(to)]++ // a server that waits for its next request
	case writes && !proc.IdleChannel(p.channel):
		f.kernel = append(f.kernel, kernelWait(p))
	default:
		f.doubt("%s %s", text, clean(to))
	}
}

// pipeWait adds the process at the other end of a pipe.
func (w *Walker) pipeWait(ctx context.Context, f *waiting, to, text string, writes bool) {
	out := wait{key: to, state: health.LinkPeer, evidence: text + " " + clean(to)}
	var alone bool
	out.next, out.unknown, alone = w.holder(ctx, f.pid, "the pipe", func(at string, info func() []byte) bool {
		if at != to {
			return false
		}
		mode := proc.ParseFDInfo(info()).Flags & unix.O_ACCMODE
		return mode == unix.O_RDWR || writes == (mode == unix.O_RDONLY)
	})
	if alone { // it waits for itself
		out.unknown, out.state = "", health.LinkAsleep
		out.evidence += ", of which only it holds the other end"
	}
	f.add(out)
}
