package proc

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// SynSent is the state of a TCP socket that has had no answer yet (include/net/tcp_states.h).
	SynSent = 2

	getTCPSockets = 18 // TCPDIAG_GETSOCK of linux/inet_diag.h, the type of a request
	oldRequestLen = 60 // struct inet_diag_req, its body

	inetInfo = 2 // INET_DIAG_INFO, a struct tcp_info of linux/tcp.h
	// The places of retransmits, last_data_sent, last_data_recv, last_ack_recv, bytes_acked and bytes_received in
	// struct tcp_info; its length up to the last.
	infoRetransmits  = 2
	infoLastSent     = 44
	infoLastReceived = 52
	infoLastAck      = 56
	infoAcked        = 120
	infoReceived     = 128
	infoLen          = 136
)

// TCPSocket is one TCP socket.
type TCPSocket struct {
	Inode         uint32
	State         uint8
	Local, Remote netip.AddrPort
	// Cookie never occurs again while the kernel runs.
	Cookie uint64
	// Unread is how many bytes this end has yet to read, Unacked how many the other end has not
	// acknowledged, those not sent yet included.
	Unread, Unacked uint32
	// Retransmits is how often the oldest of them was sent again without an answer.
	Retransmits int
	// LastAck is how long ago the other end acknowledged anything, LastSent and LastReceived how long ago this end
	// sent and received data, or was connected.
	LastAck, LastSent, LastReceived time.Duration
	// Acked is how many bytes the other end has acknowledged, Received how many this end has received.
	Acked, Received uint64
}

// TCPTo returns the TCP sockets in one of the states of the mask whose other end has a port,
// in the network namespace of this process.
func TCPTo(ctx context.Context, port uint16, states uint32) (out []TCPSocket, err error) {
	answers, err := tcpDump(ctx, port, states, 1<<(inetInfo-1))
	if err != nil {
		return nil, err
	}
	err = eachTCP(answers, func(s TCPSocket) {
		if s.Remote.Port() == port {
			out = append(out, s)
		}
	})
	return out, err
}

// ends are the addresses of both ends of a connection.
type ends struct{ local, remote netip.AddrPort }

// TCPClient is a connection to a server, or the attempt to make one (SynSent). Server is the inode of the server's end, that
// of its listener until it is accepted; 0 where it is not in this network namespace.
type TCPClient struct {
	TCPSocket

	Server uint32
}

// tcpDigest is what ReadTCP keeps of a dump: of all other sockets nothing, there may be many thousands.
type tcpDigest struct {
	listeners     map[uint16]uint32
	unread, owned map[ends]TCPSocket
	servers       map[ends]uint32 // of those owned, by the client's addresses
}

// TCPSockets are sockets in the network namespace of this process.
type TCPSockets struct {
	// Unread are the sockets of servers with bytes that they do not read, with the inode of each one's client on this
	// node as its peer; a connection that is not accepted yet has its listener's inode.
	Unread []Socket
	// Clients are the connections to servers of those whose inodes are owned, Others the inodes of all other ones.
	Clients []TCPClient
	Others  map[uint32]bool
}

// ReadTCP reads the TCP sockets.
func ReadTCP(ctx context.Context, owned map[uint32]bool) (TCPSockets, error) {
	out := TCPSockets{Others: map[uint32]bool{}}
	answers, err := tcpDump(ctx, 0, 1<<Established|1<<SynSent|1<<Listening, 0)
	if err != nil {
		return out, err
	}
	d := tcpDigest{listeners: map[uint16]uint32{}, unread: map[ends]TCPSocket{}, owned: map[ends]TCPSocket{}, servers: map[ends]uint32{}}
	err = eachTCP(answers, func(s TCPSocket) { d.keep(s, owned[s.Inode]) })
	if err != nil {
		return out, err
	}
	err = eachTCP(answers, func(s TCPSocket) { d.compare(s, owned[s.Inode], &out) })
	for near, s := range d.owned {
		_, serves := d.listeners[s.Local.Port()]
		if !serves {
			out.Clients = append(out.Clients, TCPClient{TCPSocket: s, Server: d.serverOf(near, s)})
		}
	}
	return out, err
}

// serverOf returns the inode of the server's end. A server that takes no more connections has none for an attempt: then that
// of its listener, where it is certain that it is on this node.
func (d *tcpDigest) serverOf(near ends, s TCPSocket) uint32 {
	if s.State == SynSent && s.Remote.Addr().IsLoopback() {
		return d.listeners[s.Remote.Port()]
	}
	return d.servers[near]
}

// keep keeps a socket if it matters.
func (d *tcpDigest) keep(s TCPSocket, isOwned bool) {
	near := ends{s.Local, s.Remote}
	switch {
	case s.State == Listening:
		d.listeners[s.Local.Port()] = s.Inode
		return
	case s.Unread > 0:
		d.unread[near] = s
	}
	if isOwned {
		d.owned[near] = s
	}
}

// compare notes what a socket is to the others, once all are kept.
func (d *tcpDigest) compare(s TCPSocket, isOwned bool, out *TCPSockets) {
	far := ends{s.Remote, s.Local}
	server, found := d.unread[far]
	listener, serves := d.listeners[server.Local.Port()]
	if found && serves && s.Inode != 0 {
		out.Unread = append(out.Unread, Socket{
			Inode: cmp.Or(server.Inode, listener), Kind: unix.SOCK_STREAM, State: server.State, Cookie: server.Cookie,
			Name: server.Local.String(), Peer: s.Inode, RQueue: server.Unread,
		})
	}
	_, isOfOwned := d.owned[far]
	if isOfOwned {
		d.servers[far] = cmp.Or(s.Inode, d.listeners[s.Local.Port()])
	}
	_, isServer := d.listeners[s.Local.Port()]
	if !isServer && !isOwned && s.Inode != 0 {
		out.Others[s.Inode] = true
	}
}

// ReadTimes returns a connection with the times of its data.
func ReadTimes(ctx context.Context, s TCPSocket) (TCPSocket, error) {
	request := tcpRequest(s.Local, tcpID(s.Local, s.Remote))
	request[2] = 1 << (inetInfo - 1)
	answers, err := sockDiag(ctx, 0, request)
	if err != nil {
		return TCPSocket{}, err
	}
	if len(answers) != 1 {
		return TCPSocket{}, errCutOff
	}
	current, err := parseTCP(answers[0].Data)
	if err == nil && current.Cookie != s.Cookie {
		err = fmt.Errorf("sock_diag: %w", unix.ENOENT) // another one has its addresses
	}
	return current, err
}

// eachTCP calls visit for each socket of a dump.
func eachTCP(answers []netlink.Message, visit func(TCPSocket)) error {
	for _, m := range answers {
		s, err := parseTCP(m.Data)
		if err != nil {
			return err
		}
		visit(s)
	}
	return nil
}

// tcpDump asks for sockets: those whose other end has a port, 0 for all, with extensions. The kernel walks all
// buckets of its table for each dump, so both families are asked for in one, as the request of before Linux 3.3 does.
func tcpDump(ctx context.Context, port uint16, states uint32, extensions byte) ([]netlink.Message, error) {
	request := make([]byte, oldRequestLen)
	request[3] = extensions
	binary.BigEndian.PutUint16(request[6:], port) // idiag_dport: the kernel leaves out all others
	binary.NativeEndian.PutUint32(request[52:], states)
	header := netlink.Header{Type: getTCPSockets, Flags: netlink.Request | netlink.Dump}
	answers, err := askDiag(ctx, header, request)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return dumpByFamily(ctx, unix.IPPROTO_TCP, port, states, extensions) // a kernel without it
	}
	return answers, err
}

// dumpByFamily asks for sockets of a protocol as tcpDump does, by a request for each family.
func dumpByFamily(ctx context.Context, protocol byte, port uint16, states uint32, extensions byte) (out []netlink.Message, err error) {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		request := make([]byte, tcpRequestLen)
		request[0] = family
		request[1] = protocol
		request[2] = extensions
		binary.NativeEndian.PutUint32(request[4:], states)
		binary.BigEndian.PutUint16(request[10:], port)
		answers, err := sockDiag(ctx, netlink.Dump, request)
		if err != nil {
			return nil, err
		}
		out = append(out, answers...)
	}
	return out, nil
}

// parseTCP decodes struct inet_diag_msg and the tcp_info behind it.
func parseTCP(b []byte) (TCPSocket, error) {
	if len(b) < tcpMessageLen {
		return TCPSocket{}, errCutOff
	}
	order := binary.NativeEndian
	s := TCPSocket{
		State: b[1], Inode: order.Uint32(b[68:]), Cookie: order.Uint64(b[44:]),
		Unread: order.Uint32(b[56:]), Unacked: order.Uint32(b[60:]),
		Local:  netip.AddrPortFrom(inetAddress(b[0], b[8:]), binary.BigEndian.Uint16(b[4:])),
		Remote: netip.AddrPortFrom(inetAddress(b[0], b[24:]), binary.BigEndian.Uint16(b[6:])),
	}
	err := eachAttribute(b[tcpMessageLen:], func(kind uint16, info []byte) {
		if kind != inetInfo || len(info) < infoLen {
			return
		}
		s.Retransmits = int(info[infoRetransmits])
		milliseconds := func(offset int) time.Duration { return time.Duration(word(info, offset)) * time.Millisecond }
		s.LastAck = milliseconds(infoLastAck)
		s.LastSent = milliseconds(infoLastSent)
		s.LastReceived = milliseconds(infoLastReceived)
		s.Acked = order.Uint64(info[infoAcked:])
		s.Received = order.Uint64(info[infoReceived:])
	})
	if err != nil {
		return TCPSocket{}, err
	}
	return s, nil
}

// inetAddress decodes an address of struct inet_diag_sockid.
func inetAddress(family byte, b []byte) netip.Addr {
	if family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16([16]byte(b[:16])).Unmap()
}
