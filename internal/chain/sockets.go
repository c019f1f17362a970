package chain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// fullBuffer is how much memory of a socket's usual send buffer (212,992 bytes) unread
// data must take for a server to wait for the client.
const fullBuffer = 64 << 10

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

func (c connection) text() string { return "socket " + cmp.Or(c.name, "without a name") }

// isLog reports whether a socket is one to which logs are written: no answer is awaited.
func (c connection) isLog() bool {
	return strings.HasPrefix(c.name, "/run/systemd/journal/") || c.name == "/dev/log" || strings.Contains(c.name, "syslog")
}

// connections returns the connected sockets of the process, by inode.
func (f *waiting) connections(ctx context.Context) map[uint32]connection {
	out, inodes := map[uint32]connection{}, map[uint32]bool{}
	err := proc.EachFD(f.procfs, f.pid, func(_ int, to string) bool {
		if inode, ok := proc.SocketInode(to); ok {
			inodes[inode] = true
		}
		return true
	})
	f.denied = f.denied || err != nil && !proc.Gone(err)
	if err != nil || len(inodes) == 0 {
		return out
	}
	tcp(proc.Path(f.procfs, f.pid, ""), inodes, out)
	own, _ := os.Readlink(f.procfs + "/self/ns/net") // "" where it cannot be read
	if its, _ := os.Readlink(proc.Path(f.procfs, f.pid, "ns/net")); own == "" || own != its {
		f.denied = true // sock_diag sees the sockets of plegd's own network namespace
		return out
	}
	all := map[uint32]proc.Socket{}
	err = proc.EachSocket(ctx, 1<<proc.Established, func(s proc.Socket) { all[s.Inode] = s })
	f.denied = f.denied || err != nil
	for inode := range inodes {
		if own, ok := all[inode]; ok && own.Kind == unix.SOCK_STREAM {
			peer := all[own.Peer] // zero for none
			out[inode] = connection{
				peer: own.Peer, name: cmp.Or(peer.Name, own.Name), server: own.Name != "",
				sent: own.WQueue, unread: peer.RQueue, own: own.RQueue,
			}
		}
	}
	return out
}

// tcp adds the TCP connections of some inodes, by the files of a process about its network
// namespace.
func tcp(dir string, inodes map[uint32]bool, out map[uint32]connection) {
	fs, err := procfs.NewFS(dir)
	if err != nil {
		return
	}
	address := func(ip net.IP, port uint64) string { return net.JoinHostPort(ip.String(), fmt.Sprint(port)) }
	low := func(n uint64) uint32 { return uint32(n) }                             //nolint:gosec // of 32 bits
	for _, read := range []func() (procfs.NetTCP, error){fs.NetTCP, fs.NetTCP6} { //nolint:staticcheck // on demand only
		lines, _ := read() // without IPv6 there is no file
		ends, listeners := map[string]int{}, map[uint64]uint32{}
		for i, l := range lines {
			ends[address(l.LocalAddr, l.LocalPort)+" "+address(l.RemAddr, l.RemPort)] = i
			if l.St == proc.Listening {
				listeners[l.LocalPort] = low(l.Inode)
			}
		}
		for _, l := range lines {
			if l.St != proc.Established && l.St != unix.BPF_TCP_SYN_SENT || !inodes[low(l.Inode)] {
				continue
			}
			local, remote := address(l.LocalAddr, l.LocalPort), address(l.RemAddr, l.RemPort)
			c := connection{name: remote, own: low(l.RxQueue), listener: listeners[l.RemPort]}
			if at, ok := ends[remote+" "+local]; ok {
				c.peer, c.sent, c.unread = low(lines[at].Inode), low(lines[at].RxQueue), low(lines[at].RxQueue)
			} else {
				c.remote = l.St == proc.Established || c.listener == 0
			}
			_, c.server = listeners[l.LocalPort]
			out[low(l.Inode)] = c
		}
	}
}

// queues adds the processes that leave unread what this one has sent, and notes what this
// one leaves unread.
func (f *waiting) queues(ctx context.Context) {
	for inode, now := range f.now.sockets {
		b, ok := f.before.sockets[inode]
		if ok && b.own > 0 && now.own >= b.own {
			f.unread = fmt.Sprintf("leaves %d bytes unread on %s", now.own, now.text())
		}
		switch {
		case !ok || now.isLog() || now.remote || b.peer != now.peer:
		case now.server && now.sent < fullBuffer:
			// It is the server's end: a client that reads late holds up nobody until
			// there is no room left for data to it.
		case now.peer != 0 && b.unread > 0 && now.unread >= b.unread:
			f.peerWait(ctx, now.peer, now.text(), fmt.Sprintf(
				"%d bytes that it has sent wait unread at the other end of %s", now.unread, now.text()))
		case now.peer == 0 && now.listener != 0 && !now.server:
			f.peerWait(ctx, now.listener, now.text(), "its connection is not accepted at "+now.text())
		case now.peer == 0 && !now.server && b.sent > 0 && now.sent >= b.sent:
			f.acceptWait(ctx, "its connection is not accepted", false)
		}
	}
}

func socketLink(inode uint32) string { return fmt.Sprintf("socket:[%d]", inode) }

// peerWait adds the process that has a socket, unless it is the same.
func (f *waiting) peerWait(ctx context.Context, inode uint32, name, evidence string) {
	to := socketLink(inode)
	out := wait{key: to, state: facts.LinkPeer, evidence: evidence}
	if out = f.heldBy(ctx, out, name, to, nil); out.next != f.pid {
		f.add(out)
	}
}

// acceptWait adds the process that does not accept a connection. sock_diag does not
// name the unix listener at which it waits: it is known where only one has any waiting,
// or more than its limit where full is true.
func (f *waiting) acceptWait(ctx context.Context, evidence string, full bool) {
	var at []proc.Socket
	err := proc.EachSocket(ctx, 1<<proc.Listening, func(s proc.Socket) {
		if s.Listens() && (s.RQueue > s.WQueue || s.RQueue > 0 && !full) {
			at = append(at, s)
		}
	})
	switch {
	case err != nil:
	case len(at) == 1:
		evidence += fmt.Sprintf(" at socket %s, where %d wait", at[0].Name, at[0].RQueue)
		f.peerWait(ctx, at[0].Inode, "socket "+at[0].Name, evidence)
	case len(at) > 1:
		f.add(wait{
			key: "listener", state: facts.LinkPeer, evidence: evidence,
			unknown: fmt.Sprintf("connections wait at %d listeners, and the one of its own cannot be seen", len(at)),
		})
	}
}

// busNames are the sockets by which runc asks systemd for a cgroup.
var busNames = []string{"/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket", "/run/systemd/private"}

// answers adds the process whose answer a helper waits for, where no thread shows it: a
// program in Go waits in epoll(7), and the peer may have read the request. It is the one
// at the other end of its only connection, else one that stands still; behind the system
// bus that may be systemd.
func (f *waiting) answers(ctx context.Context) {
	if f.kindOf(ctx, f.now.threads[f.pid].Process) != facts.KindHelper {
		return
	}
	names := map[int]string{}
	for _, c := range f.now.sockets {
		if c.isLog() || c.server || c.name == "" || c.peer == 0 {
			continue
		}
		names[f.heldBy(ctx, wait{}, "", socketLink(c.peer), nil).next] = c.text()
		if slices.Contains(busNames, c.name) {
			names[1] = c.text()
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(names)) {
		if len(names) == 1 && pid != 0 || f.standsStill(ctx, pid) {
			evidence := "waits for nothing else, and has a connection to " + names[pid]
			f.add(wait{state: facts.LinkPeer, next: pid, evidence: evidence})
		}
	}
}

// standsStill reports whether a process is stopped, traced or frozen, or its first thread
// in D.
func (f *waiting) standsStill(ctx context.Context, pid int) bool {
	other, ok := f.look(ctx, pid)
	if !ok {
		return false
	}
	_, held := other.held()
	return held || slices.ContainsFunc(other.still(), func(t thread) bool { return t.PID == pid && t.State == 'D' })
}

// descriptorWait follows a thread that sleeps in a read or write.
func (f *waiting) descriptorWait(ctx context.Context, t thread, writes bool) {
	to, text := f.fd(t.call.FD()), fmt.Sprintf("thread %d reads from ", t.PID)
	if writes {
		text = fmt.Sprintf("thread %d writes to ", t.PID)
	}
	inode, socket := proc.SocketInode(to)
	c, known := f.now.sockets[inode]
	certain := writes || len(f.now.threads) == 1
	switch pipe := strings.HasPrefix(to, "pipe:[") || strings.HasPrefix(to, "/") && strings.Contains(t.channel, "pipe_"); {
	case to == "":
	case pipe && certain:
		f.pipeWait(ctx, to, text, writes)
	case pipe:
		f.doubt("%sa pipe", text)
	case socket && !known:
		f.doubt("%sa socket that is neither unix nor TCP", text)
	case socket && c.remote && certain:
		f.add(wait{key: to, state: facts.LinkPeer, evidence: text + c.text() + ", on another node"})
	case socket && (!certain || c.peer == 0): // without a peer it is not accepted yet, or closed
		f.doubt("%s%s", text, c.text())
	case socket:
		f.peerWait(ctx, c.peer, c.text(), text+c.text())
	case !writes && (to == "/dev/fuse" || strings.HasPrefix(to, "anon_inode:")):
		f.calls["read of "+to]++ // a server that waits for its next request
	case writes && !proc.IdleChannel(t.channel):
		f.kernel = append(f.kernel, kernelWait(t))
	default:
		f.doubt("%s%s", text, to)
	}
}

// pipeWait adds the process at the other end of a pipe.
func (f *waiting) pipeWait(ctx context.Context, to, text string, writes bool) {
	out := wait{key: to, state: facts.LinkPeer, evidence: text + to}
	out = f.heldBy(ctx, out, "the pipe", to, func(info proc.FDInfo) bool {
		mode := info.Flags & unix.O_ACCMODE
		return mode == unix.O_RDWR || writes == (mode == unix.O_RDONLY)
	})
	if out.next == f.pid { // it waits for itself
		out.next, out.state = 0, facts.LinkAsleep
		out.evidence += ", of which only it holds the other end"
	}
	f.add(out)
}
