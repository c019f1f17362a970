package chain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/wchan"
)

// fullBuffer is how much memory of a socket's usual send buffer (212,992 bytes) unread
// data must take for a server to wait for the client.
const fullBuffer = 64 << 10

// connection is a connected unix, TCP or UDP socket of a process.
type connection struct {
	peer   uint32 // the inode of the other end; 0 while that is not accepted, or gone
	name   string // path or address of the server's end, "" where it has none
	server bool   // the process has the server's end
	// sent is what the other end has not read, in bytes of memory for a unix socket;
	// unread are the bytes of it that it could read, received those that the process could.
	sent, unread, received uint32
	// listener is where a TCP connection is accepted on this node, 0 for none.
	listener uint32
	// remote is true if the other end is not on this node; syn of a TCP connection that
	// the other end has not answered.
	remote, syn bool
}

func (c connection) text() string { return "socket " + cmp.Or(c.name, "without a name") }

// connections returns the connected sockets of the process, by inode.
func (f *waiting) connections(ctx context.Context) map[uint32]connection {
	out := map[uint32]connection{}
	inodes, err := proc.SocketInodes(f.procfs, f.pid)
	f.unseenIf("its descriptors", err)
	if err != nil || len(inodes) == 0 {
		return out
	}
	if !readInternet(proc.Path(f.procfs, f.pid, ""), inodes, out) {
		f.unseen = "not all addresses and sockets of its network namespace can be read"
	}
	shares, err := f.sharesNetwork()
	if !shares {
		f.unseen = "another network namespace" // sock_diag sees the sockets of plegd's own
		f.unseenIf("its network namespace", err)
		return out
	}
	// A connected datagram socket has the second state before Linux 5.14.
	all, err := proc.UnixSockets(ctx, 1<<proc.Established|1<<closed)
	f.unseenIf("its unix sockets", err)
	for inode := range inodes {
		socket, ok := all[inode]
		if !ok || socket.State == closed && socket.Peer == 0 {
			continue
		}
		peer := all[socket.Peer] // zero for none
		out[inode] = connection{
			peer: socket.Peer, name: cmp.Or(peer.Name, socket.Name), server: socket.Name != "" && socket.Kind == unix.SOCK_STREAM,
			sent: socket.WQueue, unread: peer.RQueue, received: socket.RQueue,
		}
	}
	return out
}

// sharesNetwork reports whether the process is in plegd's network namespace. The error is why that is
// not known.
func (f *waiting) sharesNetwork() (bool, error) {
	return proc.IsSameLink(f.procfs+"/self/ns/net", proc.Path(f.procfs, f.pid, "ns/net"))
}

// queueWait is what a connected socket shows of a wait.
type queueWait int

const (
	noQueueWait queueWait = iota
	notRead               // what the process has sent stays unread
	notAccepted           // a known listener does not accept it
	notTaken              // some unix listener does not accept it
)

// queueWaitOf compares two looks at a socket.
func queueWaitOf(first, last connection) queueWait {
	switch {
	case proc.IsLogSocket(last.name) || last.remote || first.peer != last.peer:
		return noQueueWait
	case last.server && last.sent < fullBuffer:
		// It is the server's end: a client that reads late holds up nobody until there is no
		// room left for data to it.
		return noQueueWait
	case last.peer != 0 && first.unread > 0 && last.unread >= first.unread:
		return notRead
	case last.peer != 0 || last.server:
		return noQueueWait
	case last.listener != 0:
		return notAccepted
	case first.sent > 0 && last.sent >= first.sent:
		return notTaken
	}
	return noQueueWait
}

// queues adds the processes that leave unread what this one has sent, and notes what this
// one leaves unread.
func (f *waiting) queues(ctx context.Context) {
	for _, inode := range slices.Sorted(maps.Keys(f.last.sockets)) {
		last := f.last.sockets[inode]
		first, ok := f.first.sockets[inode]
		if !ok {
			continue
		}
		if first.received > 0 && last.received >= first.received {
			f.unread = fmt.Sprintf("leaves %d bytes unread on %s", last.received, last.text())
		}
		switch queueWaitOf(first, last) {
		case notRead:
			f.peerWait(ctx, last.peer, last.text(), fmt.Sprintf(
				"%d bytes that it has sent wait unread at the other end of %s", last.unread, last.text()))
		case notAccepted:
			f.peerWait(ctx, last.listener, last.text(), "its connection is not accepted at "+last.text())
		case notTaken:
			f.acceptWait(ctx, "its connection is not accepted", inode)
		case noQueueWait:
		}
	}
}

func socketLink(inode uint32) string { return fmt.Sprintf("socket:[%d]", inode) }

// peerWait adds the process that has a socket, unless it is the same.
func (f *waiting) peerWait(ctx context.Context, inode uint32, name, evidence string) {
	leads := socketLink(inode)
	out := wait{key: leads, state: facts.LinkPeer, evidence: evidence}
	out = f.heldBy(ctx, out, name, leadsTo(leads), nil)
	if out.next != f.pid {
		f.add(out)
	}
}

// maxListeners bounds the listeners whose accept queue is read.
const maxListeners = 16

// acceptWait adds the process that does not accept the connection of a unix socket. inode is
// 0 of one that still waits in connect(2): its listener has more connections than it may have.
func (f *waiting) acceptWait(ctx context.Context, evidence string, inode uint32) {
	var at []proc.Socket
	err := proc.EachSocket(ctx, 1<<proc.Listening, func(s proc.Socket) {
		full := s.RQueue > s.WQueue
		if s.Listens() && s.RQueue > 0 && (full || inode != 0) {
			at = append(at, s)
		}
	})
	if err != nil {
		f.unseenIf("the listening sockets", err)
		return
	}
	if len(at) > 1 && inode != 0 {
		at = f.listenersOf(ctx, inode, at)
	}
	switch len(at) {
	case 0:
	case 1:
		evidence += fmt.Sprintf(" at socket %s, where %d wait", at[0].Name, at[0].RQueue)
		f.peerWait(ctx, at[0].Inode, "socket "+at[0].Name, evidence)
	default:
		f.add(wait{
			key: "listener", state: facts.LinkPeer, evidence: evidence,
			unknown: fmt.Sprintf("connections wait at %d listeners, and the one of its own cannot be seen", len(at)),
		})
	}
}

// listenersOf returns the listener at which a client's socket waits; all where that is not known.
func (f *waiting) listenersOf(ctx context.Context, client uint32, all []proc.Socket) []proc.Socket {
	for _, listener := range all[:min(len(all), maxListeners)] {
		clients, err := proc.Pending(ctx, listener)
		if err == nil && slices.Contains(clients, client) {
			return []proc.Socket{listener}
		}
	}
	return all
}

// target is what a descriptor leads leads, as far as it matters for a read or write.
type target int

const (
	otherTarget target = iota
	unreadable
	pipe
	terminal
	knownSocket
	otherSocket // neither unix, TCP nor UDP, or not connected
	requests    // of a FUSE or another server, which waits for the next one
)

// targetOf classifies what the descriptor of a thread's system call leads to.
func (f *waiting) targetOf(t thread, leads string) target {
	inode, socket := proc.SocketInode(leads)
	_, known := f.last.sockets[inode]
	switch {
	case leads == "":
		return unreadable
	case strings.HasPrefix(leads, "pipe:["), strings.HasPrefix(leads, "/") && strings.Contains(t.channel, "pipe_"):
		return pipe
	case strings.HasPrefix(leads, terminals):
		return terminal
	case socket && known:
		return knownSocket
	case socket:
		return otherSocket
	case leads == "/dev/fuse", strings.HasPrefix(leads, "anon_inode:"):
		return requests
	}
	return otherTarget
}

// descriptorWait follows a thread that sleeps in a read or write. A read is certain to be a
// wait for the other end only in a process of one thread: others may have one that reads.
func (f *waiting) descriptorWait(ctx context.Context, t thread, writes bool) {
	leads := f.fd(t.call.FD())
	text := fmt.Sprintf("thread %d reads from ", t.PID)
	if writes {
		text = fmt.Sprintf("thread %d writes to ", t.PID)
	}
	certain := writes || len(f.last.threads) == 1
	kind := f.targetOf(t, leads)
	switch {
	case kind == unreadable:
	case kind == pipe && certain:
		f.pipeWait(ctx, leads, text, writes)
	case kind == pipe:
		f.doubt("%sa pipe", text)
	case kind == terminal && writes:
		f.terminalWait(ctx, leads, text)
	case kind == knownSocket:
		f.socketWait(ctx, leads, text, certain)
	case kind == otherSocket && writes && t.kind() == wchan.Receiver:
		f.datagramWait(ctx, text)
	case kind == otherSocket:
		f.doubt("%sa socket that is neither unix, TCP nor UDP, or not connected", text)
	case kind == requests && !writes:
		f.calls["read of "+leads]++
	case writes && !t.call.IsIdle(t.channel):
		f.kernel = append(f.kernel, kernelWait(t))
	default:
		f.doubt("%s%s", text, leads)
	}
}

// datagramWait adds the process that does not receive the datagrams of a socket which is not
// connected: that of the only socket of the node with datagrams that wait.
func (f *waiting) datagramWait(ctx context.Context, text string) {
	var full []proc.Socket
	err := proc.EachSocket(ctx, 1<<closed|1<<proc.Established, func(s proc.Socket) {
		if s.Kind == unix.SOCK_DGRAM && s.RQueue > 0 && s.Name != "" && !proc.IsLogSocket(s.Name) {
			full = append(full, s)
		}
	})
	f.unseenIf("the datagram sockets", err)
	if len(full) == 1 {
		name := "socket " + full[0].Name
		f.peerWait(ctx, full[0].Inode, name, text+name+", whose datagrams are not received")
		return
	}
	f.add(wait{
		key: "datagrams", state: facts.LinkPeer, evidence: text + "a socket with too many datagrams",
		unknown: fmt.Sprintf("datagrams wait at %d sockets, and the one of its own cannot be seen", len(full)),
	})
}

// socketWait adds the other end of the socket that a thread reads from or writes to.
func (f *waiting) socketWait(ctx context.Context, leads, text string, certain bool) {
	inode, _ := proc.SocketInode(leads)
	c := f.last.sockets[inode]
	switch {
	case c.remote && certain:
		f.add(wait{key: leads, state: facts.LinkPeer, evidence: text + c.text() + ", on another node"})
	case !certain || c.peer == 0: // without a peer it is not accepted yet, or closed
		f.doubt("%s%s", text, c.text())
	default:
		f.peerWait(ctx, c.peer, c.text(), text+c.text())
	}
}

// pipeWait adds the process at the other end of a pipe.
func (f *waiting) pipeWait(ctx context.Context, leads, text string, writes bool) {
	out := wait{key: leads, state: facts.LinkPeer, evidence: text + leads}
	out = f.heldBy(ctx, out, "the pipe", leadsTo(leads), otherEnd(writes))
	if out.next == f.pid { // it waits for itself
		out.next = 0
		out.state = facts.LinkAsleep
		out.evidence += ", of which only it holds the other end"
	}
	f.add(out)
}

// otherEnd reports whether a descriptor is the other end of a pipe that a process writes to, or
// reads from.
func otherEnd(writes bool) func(proc.FDInfo) bool {
	return func(info proc.FDInfo) bool {
		mode := info.Flags & unix.O_ACCMODE
		return mode == unix.O_RDWR || writes == (mode == unix.O_RDONLY)
	}
}

// terminals is the directory of pseudo terminals.
const terminals = "/dev/pts/"

// terminalWait adds the process that is to read what is written to a pseudo terminal.
func (f *waiting) terminalWait(ctx context.Context, leads, text string) {
	number := strings.TrimPrefix(leads, terminals)
	out := wait{key: leads, state: facts.LinkPeer, evidence: text + leads}
	f.add(f.heldBy(ctx, out, leads, leadsTo("/dev/ptmx", "/dev/pts/ptmx"), func(info proc.FDInfo) bool {
		return strconv.Itoa(info.Terminal) == number
	}))
}
