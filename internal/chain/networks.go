package chain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/procfs"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// maxNetworks bounds the network namespaces that are read, and networksLimit the time for it.
	maxNetworks   = 256
	networksLimit = time.Second
)

var (
	errNetworks  = fmt.Errorf("not all of more than %d network namespaces are read, or not within %s", maxNetworks, networksLimit)
	errAddresses = errors.New("not all addresses of a network namespace can be read")
	errSeveral   = errors.New("several sockets of the node may be it")
)

// eachNetwork calls visit with the directory of one process of each network namespace of the node; that of the process
// is first. The error is why one may be missing.
func (f *waiting) eachNetwork(ctx context.Context, visit func(dir string) error) error {
	limited, cancel := context.WithTimeout(ctx, networksLimit)
	defer cancel()
	all := f.processes(limited)
	unread := all.Unread
	seen := map[string]bool{}
	for _, pid := range append([]int{f.pid}, slices.Sorted(maps.Keys(all.ByPID))...) {
		if limited.Err() != nil || len(seen) > maxNetworks {
			return errNetworks
		}
		path := proc.Path(f.procfs, pid, "ns/net")
		namespace, err := proc.Link(path)
		if err == nil && !seen[namespace] {
			err = visit(proc.Path(f.procfs, pid, ""))
			_, exited := proc.Link(path) // the files of one that has are empty
			err = cmp.Or(exited, err)
			seen[namespace] = !proc.Gone(err)
		}
		isHidden := pid == 1 && errors.Is(err, proc.Denied) // as by some kernels to root; pid 2 is in the same one
		if err != nil && !proc.Gone(err) && !isHidden {
			unread = err
		}
	}
	return unread
}

// farEnd is the other end of a connection in the network namespace that has it.
type farEnd struct {
	internetSocket

	listener uint32
}

// locate completes the TCP connections of the process whose other end is not in its network namespace, or not at the
// address that it connects to, with what all namespaces of the node show.
func (f *waiting) locate(ctx context.Context) {
	if f.isLocated {
		return
	}
	f.isLocated = true
	found := newSightings(f.last.sockets)
	if len(found.clients) == 0 {
		return
	}
	f.unlocated = f.eachNetwork(ctx, found.add)
	for inode, c := range f.last.sockets {
		if !c.isElsewhere() {
			continue
		}
		located, isClear := found.complete(c)
		if !isClear {
			f.unlocated = errSeveral
		}
		f.last.sockets[inode] = located
	}
}

// sightings are what the network namespaces of the node show of some clients.
type sightings struct {
	clients   map[netip.AddrPort]bool     // their addresses
	silent    map[netip.AddrPort]bool     // addresses that do not answer them
	sent      []tuple                     // connections from the clients' addresses
	ends      []farEnd                    // connections with them
	listeners map[netip.AddrPort][]uint32 // at the silent addresses, by namespace; 0 where none has a queue
}

// newSightings returns those of the connections whose other end has not been found.
func newSightings(sockets map[uint32]connection) *sightings {
	s := &sightings{clients: map[netip.AddrPort]bool{}, silent: map[netip.AddrPort]bool{}, listeners: map[netip.AddrPort][]uint32{}}
	for _, c := range sockets {
		if !c.isElsewhere() {
			continue
		}
		s.clients[c.ends.local] = true
		if c.syn && !c.ends.remote.Addr().IsLoopback() {
			s.silent[c.ends.remote] = true
		}
	}
	return s
}

// add adds the network namespace of a process.
func (s *sightings) add(dir string) error {
	all, err := readTCP(dir)
	for _, end := range all.ends {
		if s.clients[end.local] {
			s.sent = append(s.sent, end.tuple)
		}
		if s.clients[end.remote] {
			server, _ := all.server(end.local)
			s.ends = append(s.ends, farEnd{internetSocket: end, listener: server.inode})
		}
	}
	for address := range s.silent {
		if all.local.contains(address.Addr()) {
			server, _ := all.server(address)
			if server.unread == 0 {
				server.inode = 0 // it would accept: what the client sends does not arrive
			}
			s.listeners[address] = append(s.listeners[address], server.inode)
		}
	}
	return err
}

// complete adds the other end of a connection; isClear is false where several sockets may be it.
func (s *sightings) complete(c connection) (located connection, isClear bool) {
	ends := s.otherEnds(c.ends)
	listeners := s.listeners[c.ends.remote]
	first := slices.Index(s.sent, c.ends)
	isTwice := slices.Contains(s.sent[first+1:], c.ends) // two network namespaces have the same addresses
	switch {
	case first >= 0 && isTwice:
		return c, false
	case len(ends) == 1:
		c.remote = false
		c.peer = ends[0].inode
		c.listener = ends[0].listener
		c.sent = ends[0].unread
		c.unread = ends[0].unread
	case len(ends) == 0 && len(listeners) == 1:
		c.remote = false
		c.listener = listeners[0]
	case len(ends)+len(listeners) > 1:
		return c, false
	}
	return c, true
}

// otherEnds returns the sockets that may be the other end of a connection: that with the same two addresses, else one that
// has another address than the client connects to, as behind that of a service (DNAT). That is none which has its own
// client, and it is known only where no other connection from the same port looks for its other end.
func (s *sightings) otherEnds(client tuple) []farEnd {
	hasEnd := func(t tuple) bool {
		return slices.ContainsFunc(s.ends, func(end farEnd) bool { return end.tuple == t.swapped() })
	}
	isForeign := func(end farEnd) bool { return end.tuple != client.swapped() }
	if hasEnd(client) {
		return slices.DeleteFunc(slices.Clone(s.ends), isForeign)
	}
	isOthers := func(t tuple) bool { return t.local == client.local && t != client && !hasEnd(t) }
	if slices.ContainsFunc(s.sent, isOthers) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.ends), func(end farEnd) bool {
		return end.remote != client.local || slices.Contains(s.sent, end.swapped())
	})
}

// isElsewhere reports whether the other end of a TCP connection has not been found.
func (c connection) isElsewhere() bool { return c.remote && c.ends.local.IsValid() }

func (t tuple) swapped() tuple { return tuple{local: t.remote, remote: t.local} }

// elsewhere describes where the other end of a connection has not been found: behind an address that is translated it may
// be on this node all the same.
func (f *waiting) elsewhere(c connection) string {
	switch {
	case !c.isElsewhere(): // UDP
		return "not seen in its network namespace"
	case f.unlocated != nil:
		return fmt.Sprintf("not seen in its network namespace (%v)", f.unlocated)
	}
	return "not seen on this node"
}

// unixQueue is a path of unix sockets at which connections are not accepted.
type unixQueue struct {
	path      string
	waits     int      // how many
	isOwn     bool     // a socket of the client's network namespace listens there
	listeners []uint32 // sockets of other ones that do
}

// isListening is the flag of a listening socket in /proc/PID/net/unix (__SO_ACCEPTCON).
const isListening = 1 << 16

// unixQueues returns the paths of listeners in other network namespaces at which connections of the process's own wait,
// or of all where the process still connects: a connection that is not accepted has its listener's path and no inode.
func (f *waiting) unixQueues(ctx context.Context, connects bool) ([]unixQueue, error) {
	queues := map[string]unixQueue{}
	isFirst := true
	err := f.eachNetwork(ctx, func(dir string) error {
		isOwn := isFirst
		isFirst = false
		fs, err := procfs.NewFS(dir)
		if err != nil {
			return err
		}
		sockets, err := fs.NetUNIX()
		if err != nil {
			return err
		}
		for _, s := range sockets.Rows {
			q := queues[s.Path]
			q.path = s.Path
			q.add(s, isOwn, isOwn || connects)
			queues[s.Path] = q
		}
		return nil
	})
	all := slices.Collect(maps.Values(queues))
	return slices.DeleteFunc(all, func(q unixQueue) bool {
		isPath := q.path != "" && q.path[0] != '@' // an abstract name is only of its namespace
		return !isPath || q.waits == 0 || q.isOwn && len(q.listeners) == 0
	}), err
}

// add adds a socket of the client's own network namespace, or of another one; counts is whether connections count.
func (q *unixQueue) add(s *procfs.NetUNIXLine, isOwn, counts bool) {
	listens := s.Flags&isListening != 0
	switch {
	case listens && isOwn:
		q.isOwn = true
	case listens:
		q.listeners = append(q.listeners, low(s.Inode))
	case s.Inode == 0 && counts:
		q.waits++
	}
}

// acceptWait adds the process that does not accept the connection of a unix socket. inode is 0 of one that still waits in
// connect(2): its listener has more connections than it may have. Without proof at which one it waits none is named.
func (f *waiting) acceptWait(ctx context.Context, evidence string, inode uint32) {
	var listeners []proc.Socket
	err := proc.EachSocket(ctx, 1<<proc.Listening, func(s proc.Socket) {
		full := s.RQueue > s.WQueue
		if s.RQueue > 0 && (full || inode != 0) {
			listeners = append(listeners, s)
		}
	})
	if err != nil {
		f.unseenIf("the listening sockets", err)
		return
	}
	listeners, proved := f.listenersOf(ctx, inode, listeners)
	var others []unixQueue
	if !proved {
		others, err = f.unixQueues(ctx, inode == 0)
		f.unseenIf("the unix sockets of other network namespaces", err)
	}
	count := len(listeners) + len(others)
	switch {
	case count == 0:
	case count > 1 || err != nil:
		f.add(wait{
			key: "listener", state: facts.LinkPeer, evidence: evidence,
			unknown: fmt.Sprintf("connections wait at %d listeners, and the one of its own cannot be seen", count),
		})
	case len(others) == 1:
		f.notAccepted(ctx, evidence, others[0])
	default:
		f.notAccepted(ctx, evidence, unixQueue{
			path: listeners[0].Name, waits: int(listeners[0].RQueue), listeners: []uint32{listeners[0].Inode},
		})
	}
}

// notAccepted adds the process that has the listener of a queue.
func (f *waiting) notAccepted(ctx context.Context, evidence string, q unixQueue) {
	name := "socket " + q.path
	var links []string
	for _, inode := range q.listeners {
		links = append(links, socketLink(inode))
	}
	out := wait{key: name, state: facts.LinkPeer, evidence: fmt.Sprintf("%s at %s, where %d wait", evidence, name, q.waits)}
	out = f.heldBy(ctx, out, name, leadsTo(links...), nil)
	if out.next != f.pid {
		f.add(out)
	}
}

// listenersOf returns the listener at which a client's socket waits, and true; else those for which that is not known: all
// for the client 0.
func (f *waiting) listenersOf(ctx context.Context, client uint32, all []proc.Socket) (out []proc.Socket, proved bool) {
	for i, listener := range all {
		if client == 0 || i >= maxListeners {
			out = append(out, listener)
			continue
		}
		clients, err := proc.Pending(ctx, listener)
		if err != nil {
			out = append(out, listener)
		}
		if slices.Contains(clients, client) {
			return []proc.Socket{listener}, true
		}
	}
	return out, false
}
