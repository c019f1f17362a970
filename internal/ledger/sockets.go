package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/proc"
)

const (
	// fullStream is how many unread bytes keep a server of gRPC from sending more: its flow
	// control lets 64 KiB be on the way. fullBuffer is the memory that they take at the sender.
	fullStream = 60_000
	fullBuffer = 64 << 10
	// maxStrangers is up to how many connections of others a new one is looked for: on a node with more of them, as a proxy
	// has, that of a hop is found once its descriptors are read anyway.
	maxStrangers = 4096
	// maxListeners bounds the listeners whose accept queue is read in one pass.
	maxListeners = 8
)

// dump holds the sockets of the node that connect: of streams, and of packets in sequence.
type dump struct {
	byInode         map[uint32]proc.Socket
	unread, waiting []proc.Socket // connected ones with bytes to read, and listeners with connections
}

// add adds a socket.
func (d *dump) add(s proc.Socket) {
	if s.Kind == unix.SOCK_DGRAM {
		return
	}
	d.byInode[s.Inode] = s
	switch {
	case s.RQueue == 0:
	case s.State == proc.Listening:
		d.waiting = append(d.waiting, s)
	default:
		d.unread = append(d.unread, s)
	}
}

// sockets notes the streams whose bytes are not read, and the listeners that do not accept.
func (p *pass) sockets(ctx context.Context) {
	d := &dump{byInode: map[uint32]proc.Socket{}}
	err := proc.EachSocket(ctx, 1<<proc.Established|1<<proc.Listening, d.add)
	p.unread.Add(unixSockets, err)
	if err != nil {
		return
	}
	owners := &owners{pass: p}
	hops := p.readHops()
	tcp := p.connections(ctx, hops)
	for _, s := range tcp.Unread {
		d.byInode[s.Peer] = proc.Socket{Inode: s.Peer} // a client has no name
	}
	p.requests(ctx, tcp.Clients, hops)
	p.goneServers(d, hops)
	for _, s := range slices.Concat(d.unread, tcp.Unread) {
		o := p.keepSocket(unreadBytes, s)
		if o.waiter != 0 || p.isDue(o) {
			p.resolveUnread(ctx, o, d.byInode[s.Peer], owners)
		}
	}
	p.datagrams(ctx)
	for _, s := range d.waiting {
		if p.answersAt(s.Name) { // it has a reason of its own, and plegd's fresh connection waits there at times
			continue
		}
		o := p.keepSocket(unaccepted, s)
		if o.waiter != 0 || p.isDue(o) {
			p.resolveUnaccepted(ctx, o, owners)
		}
	}
}

// connections reads the TCP sockets. Where a connection may be a hop's, it reads the descriptors of the hops again.
func (p *pass) connections(ctx context.Context, hops map[proc.ID]descriptors) proc.TCPSockets {
	all, err := p.readTCP(ctx, socketsOf(hops))
	if err == nil && len(all.Others) <= maxStrangers && p.haveCome(all.Others) {
		p.rereadHops()
		all, err = p.readTCP(ctx, socketsOf(hops))
		p.strangers = all.Others
	}
	p.unread.Add(tcpSockets, err)
	return all
}

// keepSocket notes what a socket shows.
func (p *pass) keepSocket(what kind, s proc.Socket) *obligation {
	return p.keep(obligation{identity: identity{kind: what, id: s.Cookie}, amount: s.RQueue, socket: s})
}

// resolveUnread finds the sender of unread bytes and the process that does not read them. A server
// waits for a client that reads late only when the buffer is full.
func (p *pass) resolveUnread(ctx context.Context, o *obligation, sender proc.Socket, owners *owners) {
	if proc.IsLogSocket(sender.Name) || proc.IsLogSocket(o.socket.Name) {
		return
	}
	isServer := p.answersAt(sender.Name)
	isFull := o.amount >= fullStream || sender.WQueue >= fullBuffer
	if isServer && !isFull {
		o.waiter = 0
		return
	}
	if o.waiter == 0 {
		o.waiter = owners.holder(ctx, sender.Inode)
	}
	if o.waiter == 0 {
		return
	}
	o.isClients = isServer
	o.name = sender.Name + o.socket.Name // one of the two has none
	o.evidence = fmt.Sprintf("%d bytes that it has sent wait unread at the other end of socket %s", o.amount, o.name)
	p.resolveDebtor(ctx, o)
}

// resolveUnaccepted finds whose connections wait at a listener, and whose it is. That of the
// runtime has a reason of its own.
func (p *pass) resolveUnaccepted(ctx context.Context, o *obligation, owners *owners) {
	if o.debtor == 0 {
		p.resolveDebtor(ctx, o)
	}
	if slices.Contains(p.pids, o.debtor) || proc.IsLogSocket(o.socket.Name) || owners.listeners >= maxListeners {
		o.waiter = 0
		return
	}
	owners.listeners++
	clients, err := proc.Pending(ctx, o.socket)
	p.unread.Add(clientsOfListeners, err)
	if err != nil {
		return
	}
	for _, client := range clients {
		o.waiter = owners.holder(ctx, client)
		if o.waiter != 0 {
			break
		}
	}
	o.evidence = fmt.Sprintf("its connection is not accepted at socket %s, where %d wait", o.socket.Name, o.amount)
}

// resolveDebtor finds the process that has the socket of an obligation.
func (p *pass) resolveDebtor(ctx context.Context, o *obligation) {
	holder, err := p.Table.Holder(ctx, o.socket.Inode)
	p.unread.Add(holdersOfSockets, err)
	o.debtor = holder.PID
	kubelet := p.members.Kubelet(ctx, holder)
	p.unread.Add(holdersOfSockets, kubelet.Err)
	if err != nil || holder.PID == o.waiter || kubelet.Proven() || kubelet.Err != nil {
		o.debtor = 0
	}
}

// answersAt reports whether the server at a socket answers its clients' requests: so do the
// runtime and the hops behind it at the sockets that calls and their shims' events come by. At
// another one, as that of the node resource interface, the runtime may send requests of its own,
// and wait for the answers.
func (p *pass) answersAt(name string) bool {
	return name != "" && slices.Contains(p.serving, strings.TrimSuffix(name, ".ttrpc"))
}

// owners finds the sockets and pipes of the runtime, the hops behind it and their shims. It reads the descriptors of a hop
// when idleLimit has passed, two passes have counted another number of them, or a TCP connection has come that may be its;
// when something is owed, those of a hop or shim whose number has changed.
type owners struct {
	*pass
	isRead    bool // in this pass, the shims too
	listeners int  // whose queues have been read
}

// descriptors are the sockets and pipes of a process, as they were when it had so many descriptors.
type descriptors struct {
	readAt  time.Time // zero where they could not be read
	count   int
	sockets map[uint32]bool
	pipes   []pipeEnd
	// countedAt is the last pass that has counted them, and wasOther whether it counted another number.
	countedAt time.Time
	wasOther  bool
}

// pipeEnd is a descriptor of a pipe, none of those that a process is started with.
type pipeEnd struct {
	identity

	fd   int
	name string // pipe:[123]
}

// holder returns the process of the family that has a socket, 0 for none.
func (f *owners) holder(ctx context.Context, inode uint32) int {
	if !f.isRead {
		f.isRead = true
		f.read(ctx)
	}
	return pidOf(f.opened, inode)
}

// socketsOf returns the sockets of processes.
func socketsOf(opened map[proc.ID]descriptors) map[uint32]bool {
	all := map[uint32]bool{}
	for _, known := range opened {
		maps.Copy(all, known.sockets)
	}
	return all
}

// pidOf returns the process that has a socket, 0 for none.
func pidOf(opened map[proc.ID]descriptors, inode uint32) int {
	for id, known := range opened {
		if known.sockets[inode] {
			return id.PID
		}
	}
	return 0
}

// readHops returns the descriptors of the runtime and the hops behind it, as old as idleLimit allows.
func (p *pass) readHops() map[proc.ID]descriptors {
	hops := map[proc.ID]descriptors{}
	for _, hop := range p.hops {
		known := p.ofHops[hop]
		isOld := p.moment.Sub(known.readAt) >= idleLimit || p.owes(openPipe) && known.readAt.Before(p.moment)
		if isOld || p.hasChanged(&known, hop.PID) {
			known = p.update(descriptors{}, hop.PID, descriptorsOfRuntime)
		}
		hops[hop] = known
	}
	p.ofHops = hops
	return hops
}

// rereadHops reads the descriptors of the hops again.
func (p *pass) rereadHops() {
	for hop := range p.ofHops {
		p.ofHops[hop] = p.update(descriptors{}, hop.PID, descriptorsOfRuntime)
	}
}

// haveCome reports whether a connection, of those that were not known to be a hop's, has come since the descriptors were
// read, and has stayed from one pass to the next: it may be a hop's. The number of descriptors need not show that.
func (p *pass) haveCome(others map[uint32]bool) bool {
	isFresh := true // all descriptors were read in this pass
	for _, known := range p.ofHops {
		isFresh = isFresh && known.readAt.Equal(p.moment)
	}
	if isFresh {
		p.strangers = others
	}
	newcomers := map[uint32]bool{}
	haveStayed := false
	for inode := range others {
		if p.strangers[inode] {
			continue
		}
		newcomers[inode] = true
		haveStayed = haveStayed || p.newcomers[inode]
	}
	p.newcomers = newcomers
	return haveStayed
}

// hasChanged reports whether two passes have counted another number of descriptors than was read: that of one may be due to
// plegd's own connections, which come and go.
func (p *pass) hasChanged(known *descriptors, pid int) bool {
	if !known.countedAt.Before(p.moment) {
		return false // it was counted in this pass
	}
	count, err := proc.CountFDs(p.Table.ProcFS, pid)
	p.unread.Add(descriptorsOfRuntime, err)
	isOther := err == nil && count != known.count
	hasChanged := isOther && known.wasOther
	known.countedAt = p.moment
	known.wasOther = isOther
	return hasChanged
}

// read updates the open descriptors of each process.
func (f *owners) read(ctx context.Context) {
	known := f.opened
	f.opened = map[proc.ID]descriptors{}
	for _, hop := range f.hops {
		f.ofHops[hop] = f.update(f.ofHops[hop], hop.PID, descriptorsOfRuntime)
	}
	maps.Copy(f.opened, f.ofHops)
	all := f.readProcesses(ctx, tableAge)
	if all == nil {
		return
	}
	for pid, shim := range f.shimsIn(ctx, all) {
		f.opened[shim.ID()] = f.update(known[shim.ID()], pid, descriptorsOfShims)
	}
}

// update returns the descriptors of a process, read again if their number is another one than that of the last time;
// part names them where they cannot be read.
func (p *pass) update(last descriptors, pid int, part string) descriptors {
	count, err := proc.CountFDs(p.Table.ProcFS, pid)
	p.unread.Add(part, err)
	if err == nil && !last.readAt.IsZero() && last.count == count {
		return last
	}
	next := descriptors{readAt: p.moment, count: count, countedAt: p.moment, sockets: map[uint32]bool{}}
	err = proc.EachFD(p.Table.ProcFS, pid, func(fd int, leads string) bool {
		inode, isSocket := proc.SocketInode(leads)
		pipe, isPipe := pipeIdentity(leads)
		switch {
		case isSocket:
			next.sockets[inode] = true
		case isPipe && fd >= standardFDs:
			next.pipes = append(next.pipes, pipeEnd{identity: pipe, fd: fd, name: leads})
		}
		return true
	})
	p.unread.Add(part, err)
	if err != nil {
		next.readAt = time.Time{}
	}
	return next
}
