package chain

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/wchan"
)

// target is the kind of file behind a descriptor, as far as it matters for a read or write.
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
	case f.terminalOf(t, leads) >= 0:
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
		f.endWait(ctx, leads, text, otherEnd(writes))
	case kind == pipe:
		f.doubt("%sa pipe", text)
	case kind == terminal && certain:
		f.terminalWait(ctx, t, f.terminalOf(t, leads), text+leads)
	case kind == knownSocket:
		f.socketWait(ctx, leads, text, certain)
	case kind == otherSocket && writes && t.kind() == wchan.Receiver:
		f.datagramWait(ctx, text)
	case kind == otherSocket && !writes && f.netlinkWait(leads, text, certain):
	case kind == otherSocket && !writes && certain && f.packetWait(leads, text):
	case kind == otherSocket:
		f.doubt("%sa socket that is neither unix, TCP nor UDP, or not connected", text)
	case leads == eventLink && !writes && certain && f.eventWait(ctx, t, text):
	case kind == requests && !writes:
		f.calls["read of "+leads]++
	case writes && !t.call.IsIdle(t.channel):
		f.kernel = append(f.kernel, kernelWait(t))
	default:
		f.doubt("%s%s", text, leads)
	}
}

// copies are the system calls that move bytes from one descriptor to another: the places of the two.
var copies = map[int][2]int{unix.SYS_SPLICE: {0, 2}, unix.SYS_TEE: {0, 1}, unix.SYS_SENDFILE: {1, 0}}

// copyWait follows a thread that sleeps in one of these, as in a read or a write. Where the kernel function
// does not tell which, it is the end that is no pipe.
func (f *waiting) copyWait(ctx context.Context, t thread) {
	places := copies[t.call.Number]
	input := t
	output := t
	input.call.Args[0] = t.call.Args[places[0]]
	output.call.Args[0] = t.call.Args[places[1]]
	_, reads := proc.SocketInode(f.fd(input.call.FD()))
	if strings.Contains(t.channel, "pipe_") {
		reads = wchan.IsIdle(t.channel)
	}
	if reads {
		f.descriptorWait(ctx, input, false)
		return
	}
	f.descriptorWait(ctx, output, true)
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

// netlinkWait adds the wait for a message at a netlink socket, which the kernel sends. It is false for another socket.
func (f *waiting) netlinkWait(leads, text string, certain bool) bool {
	inode, _ := proc.SocketInode(leads)
	socket, err := proc.Netlink(f.procfs, f.pid, inode)
	f.unseenIf("its netlink sockets", err)
	if err != nil {
		return false
	}
	text += "a netlink socket (" + socket.Name() + ")"
	if !certain || !socket.IsOfKernel() {
		f.doubt("%s", text)
		return true
	}
	text += ": it waits for a message of the kernel, which has not come"
	f.add(wait{key: leads, state: facts.LinkAsleep, evidence: text})
	return true
}

// packetWait adds the wait for a packet of the network, as that of a DHCP client. It is false for another socket.
func (f *waiting) packetWait(leads, text string) bool {
	inode, _ := proc.SocketInode(leads)
	kind, err := proc.RawSocket(f.procfs, f.pid, inode)
	f.unseenIf("its packet sockets", err)
	if kind == "" {
		return false
	}
	text += "a " + kind + " socket: it waits for a packet of the network, which has not come"
	f.add(wait{key: leads, state: facts.LinkAsleep, evidence: text})
	return true
}

// socketWait adds the other end of the socket that a thread reads from or writes to.
func (f *waiting) socketWait(ctx context.Context, leads, text string, certain bool) {
	f.locate(ctx)
	inode, _ := proc.SocketInode(leads)
	c := f.last.sockets[inode]
	switch {
	case c.remote && certain:
		f.add(wait{key: leads, state: facts.LinkPeer, evidence: text + c.text(), link: serverElsewhere(c.name, "its end is "+f.elsewhere(c))})
	case !certain || c.peer == 0: // without a peer it is not accepted yet, or closed
		f.doubt("%s%s", text, c.text())
	case f.isLost(inode):
		f.add(lostOnTheWay(c, text))
	default:
		f.peerWait(ctx, c.peer, c.text(), text+c.text())
	}
}

// isLost reports whether bytes of a TCP connection were not acknowledged at both looks, and nobody has them to read: a network of
// one node takes less than a millisecond.
func (f *waiting) isLost(inode uint32) bool {
	last := f.last.sockets[inode]
	return last.unacknowledged > 0 && f.first.sockets[inode].unacknowledged > 0 && last.unread == 0 && last.received == 0
}

// messageWait follows a thread that sleeps at a POSIX message queue, which is full or empty.
func (f *waiting) messageWait(ctx context.Context, t thread) {
	sends := t.call.Number == unix.SYS_MQ_TIMEDSEND
	text := fmt.Sprintf("thread %d waits at the message queue ", t.PID)
	leads := f.fd(t.call.FD())
	if !sends && len(f.last.threads) > 1 { // it may wait for work
		f.doubt("%s%s", text, leads)
		return
	}
	queue := proc.ReadFDInfo(f.procfs, f.pid, t.call.FD())
	isOtherEnd := otherEnd(sends)
	f.endWait(ctx, leads, text, func(info proc.FDInfo) bool {
		return info.Inode == queue.Inode && info.MountID == queue.MountID && isOtherEnd(info)
	})
}

// eventLink is where the descriptor of any eventfd leads.
const eventLink = "anon_inode:[eventfd]"

// eventWait adds the process that shares the counter of an eventfd, which a thread reads. It is false where none does, or
// where that is not known.
func (f *waiting) eventWait(ctx context.Context, t thread, text string) bool {
	id := proc.ReadFDInfo(f.procfs, f.pid, t.call.FD()).EventFD
	if id == "" {
		return false
	}
	name := "eventfd " + id
	out := wait{key: name, state: facts.LinkPeer, evidence: text + name}
	out = f.heldBy(ctx, out, name, leadsTo(eventLink), func(info proc.FDInfo) bool { return info.EventFD == id })
	if out.next == f.pid {
		return false
	}
	f.add(out)
	return true
}

// endWait adds the process at the other end of a pipe or a message queue, for which keep is true by its fdinfo.
func (f *waiting) endWait(ctx context.Context, leads, text string, keep func(proc.FDInfo) bool) {
	out := wait{key: leads, state: facts.LinkPeer, evidence: text + leads}
	f.addEnd(f.heldBy(ctx, out, leads, leadsTo(leads), keep))
}

// addEnd adds a wait for the other end of something, which the process itself may have.
func (f *waiting) addEnd(out wait) {
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

// terminalOf returns the number of the pseudo terminal to which a thread's descriptor leads, -1 for none. It may have
// another name, as /dev/console of a container: then its device shows that.
func (f *waiting) terminalOf(t thread, leads string) int {
	name, isNamed := strings.CutPrefix(leads, terminals)
	if isNamed {
		number, err := strconv.Atoi(name)
		if err == nil {
			return number
		}
	}
	if strings.HasPrefix(leads, "/") && t.channel == "wait_woken" { // no file system waits there
		return proc.Terminal(f.procfs, f.pid, t.call.FD())
	}
	return -1
}

// terminalWait adds the process that has the master side of a pseudo terminal: it should read what is written to the
// terminal, and write what is read.
func (f *waiting) terminalWait(ctx context.Context, t thread, number int, text string) {
	f.readMounts(ctx)
	terminal := proc.ReadFDInfo(f.procfs, f.pid, t.call.FD())
	pids, err := proc.Holders(ctx, f.procfs, func(pid, fd int, leads string) bool {
		if path.Base(leads) != "ptmx" {
			return false
		}
		master := proc.ReadFDInfo(f.procfs, pid, fd)
		return master.Terminal == number && f.sharesTerminals(ctx, terminal.MountID, master.MountID, pid, leads)
	})
	name := fmt.Sprint(terminals, number)
	f.addEnd(f.heldByOne(ctx, wait{key: name, state: facts.LinkPeer, evidence: text}, name, pids, err))
}

// sharesTerminals reports whether a pseudo terminal and a master side that another process has are of the same devpts: each
// container has one, with terminals of the same numbers. A descriptor may have come from the other process.
func (f *waiting) sharesTerminals(ctx context.Context, terminal, master, pid int, leads string) bool {
	mounts, err := f.table.Mounts(ctx, pid)
	f.unseenIf("the mounts of other processes", err)
	device := cmp.Or(devptsOf(f.mounts, terminal, leads), devptsOf(mounts, terminal, leads))
	return device != "" && device == cmp.Or(devptsOf(mounts, master, leads), devptsOf(f.mounts, master, leads))
}

// devptsOf returns the device of the devpts for a file of some mount: that mount, or the one beside a ptmx in another file
// system; "" where it is not known.
func devptsOf(mounts []proc.Mount, id int, leads string) (device string) {
	i := slices.IndexFunc(mounts, func(m proc.Mount) bool { return id != 0 && m.ID == id })
	if i < 0 {
		return ""
	}
	if mounts[i].Type == "devpts" {
		return mounts[i].Device
	}
	instance := path.Join(path.Dir(leads), "pts")
	for _, m := range mounts { // the last one hides the others
		if m.Point == instance && m.Type == "devpts" {
			device = m.Device
		}
	}
	return device
}

// connectWait follows a thread in connect(2).
func (f *waiting) connectWait(ctx context.Context, t thread) {
	f.locate(ctx)
	inode, _ := proc.SocketInode(f.fd(t.call.FD()))
	c, internet := f.last.sockets[inode]
	text := fmt.Sprintf("thread %d connects to ", t.PID)
	if !internet {
		f.acceptWait(ctx, text+"a full queue", 0)
		return
	}
	f.notAnswered(ctx, c, text)
}

// lostOnTheWay is the wait for the other end of a connection of this node, to which, or from which, what is sent does not arrive.
func lostOnTheWay(c connection, text string) wait {
	const lost = "what is sent does not arrive: look for a firewall, a full table of connections or a bad link on the way"
	return wait{key: c.name, state: facts.LinkPeer, evidence: text + c.name, link: serverElsewhere(c.name, lost)}
}

// notAnswered adds what does not answer a TCP connection.
func (f *waiting) notAnswered(ctx context.Context, c connection, text string) {
	known := len(f.found)
	switch {
	case c.remote:
		f.add(wait{key: c.name, state: facts.LinkPeer, evidence: text + c.name, link: serverElsewhere(c.name, "it does not answer, and is "+f.elsewhere(c))})
	case c.listener != 0:
		f.peerWait(ctx, c.listener, c.text(), text+c.name+", where it is not accepted")
	default:
		f.add(lostOnTheWay(c, text))
	}
	for i := known; i < len(f.found); i++ {
		f.found[i].connects = true
	}
}
