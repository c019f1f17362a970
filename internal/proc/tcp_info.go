package proc

import (
	"cmp"
	"context"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// SynSent is the state of a TCP socket that has had no answer yet (include/net/tcp_states.h).
	SynSent = 2

	inetInfo = 2 // INET_DIAG_INFO, a struct tcp_info of linux/tcp.h
	// The places of retransmits, last_ack_recv and bytes_acked in struct tcp_info; its length up to the last.
	infoRetransmits = 2
	infoLastAck     = 56
	infoAcked       = 120
	infoLen         = 128
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
	// LastAck is how long ago the other end acknowledged anything, Acked how many bytes it has.
	LastAck time.Duration
	Acked   uint64
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

// UnreadTCP returns the sockets of servers, in the network namespace of this process, with bytes that they
// do not read, and the inode of each one's client on this node as its peer. A connection that
// is not accepted yet has its listener's inode. Of all others nothing is kept: there may be many thousands.
func UnreadTCP(ctx context.Context) (out []Socket, err error) {
	answers, err := tcpDump(ctx, 0, 1<<Established|1<<Listening, 0)
	if err != nil {
		return nil, err
	}
	listeners := map[uint16]uint32{}
	unread := map[ends]TCPSocket{}
	err = eachTCP(answers, func(s TCPSocket) {
		switch {
		case s.State == Listening:
			listeners[s.Local.Port()] = s.Inode
		case s.Unread > 0:
			unread[ends{s.Local, s.Remote}] = s
		}
	})
	if err != nil || len(unread) == 0 {
		return nil, err
	}
	err = eachTCP(answers, func(client TCPSocket) {
		s, found := unread[ends{client.Remote, client.Local}]
		listener, serves := listeners[s.Local.Port()]
		if found && serves && client.Inode != 0 {
			out = append(out, Socket{
				Inode: cmp.Or(s.Inode, listener), Kind: unix.SOCK_STREAM, State: s.State, Cookie: s.Cookie,
				Name: s.Local.String(), Peer: client.Inode, RQueue: s.Unread,
			})
		}
	})
	return out, err
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

// tcpDump asks for sockets: those whose other end has a port, 0 for all, with extensions.
func tcpDump(ctx context.Context, port uint16, states uint32, extensions byte) (out []netlink.Message, err error) {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		request := make([]byte, tcpRequestLen)
		request[0] = family
		request[1] = unix.IPPROTO_TCP
		request[2] = extensions
		binary.NativeEndian.PutUint32(request[4:], states)
		binary.BigEndian.PutUint16(request[10:], port) // idiag_dport: the kernel leaves out all others
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
		s.LastAck = time.Duration(word(info, infoLastAck)) * time.Millisecond
		s.Acked = order.Uint64(info[infoAcked:])
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
