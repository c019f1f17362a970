package chain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
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
	// unacknowledged are the bytes that the process has sent by TCP and the other end has not said to have.
	unacknowledged uint32
	// listener is where a TCP connection is accepted on this node, 0 for none.
	listener uint32
	// remote is true if the other end has not been found; syn of a TCP connection that
	// the other end has not answered.
	remote, syn bool
	ends        tuple // of a TCP connection
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
			peer: socket.Peer, name: cmp.Or(peer.Name, socket.Name), server: socket.Name != "" && socket.Kind != unix.SOCK_DGRAM,
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
	if len(f.found) == 0 && f.kindOf(ctx, f.last.threads[f.pid].Process) == facts.KindHelper {
		f.locate(ctx)
	}
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

// connects adds what has not answered the TCP connections of a process at both looks: its threads may wait in epoll(7).
func (f *waiting) connects(ctx context.Context) {
	for _, inode := range slices.Sorted(maps.Keys(f.last.sockets)) {
		first := f.first.sockets[inode]
		if first.syn && f.last.sockets[inode].syn && first.ends == f.last.sockets[inode].ends {
			f.locate(ctx)
			f.notAnswered(ctx, f.last.sockets[inode], "connects to ")
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
