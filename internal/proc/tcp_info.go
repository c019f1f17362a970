package proc

import (
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
	// The places of retransmits and last_ack_recv in struct tcp_info; its length up to the last.
	infoRetransmits = 2
	infoLastAck     = 56
	infoLen         = 60
)

// TCPSocket is one TCP socket.
type TCPSocket struct {
	Inode         uint32
	State         uint8
	Local, Remote netip.AddrPort
	// Unacked is how many bytes the other end has not acknowledged, those not sent yet included.
	Unacked uint32
	// Retransmits is how often the oldest of them was sent again without an answer.
	Retransmits int
	// LastAck is how long ago the other end acknowledged anything.
	LastAck time.Duration
}

// TCPTo returns the TCP sockets in one of the states of the mask whose other end has a port,
// in the network namespace of this process.
func TCPTo(ctx context.Context, port uint16, states uint32) ([]TCPSocket, error) {
	var out []TCPSocket
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		found, err := tcpDump(ctx, family, port, states)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// tcpDump asks for the sockets of one address family.
func tcpDump(ctx context.Context, family byte, port uint16, states uint32) ([]TCPSocket, error) {
	request := make([]byte, tcpRequestLen)
	request[0] = family
	request[1] = unix.IPPROTO_TCP
	request[2] = 1 << (inetInfo - 1)
	binary.NativeEndian.PutUint32(request[4:], states)
	binary.BigEndian.PutUint16(request[10:], port) // idiag_dport: the kernel leaves out all others
	answers, err := sockDiag(ctx, netlink.Dump, request)
	if err != nil {
		return nil, err
	}
	var out []TCPSocket
	for _, m := range answers {
		s, err := parseTCP(m.Data)
		if err != nil {
			return nil, err
		}
		if s.Remote.Port() == port {
			out = append(out, s)
		}
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
		State: b[1], Inode: order.Uint32(b[68:]), Unacked: order.Uint32(b[60:]),
		Local:  netip.AddrPortFrom(inetAddress(b[0], b[8:]), binary.BigEndian.Uint16(b[4:])),
		Remote: netip.AddrPortFrom(inetAddress(b[0], b[24:]), binary.BigEndian.Uint16(b[6:])),
	}
	err := eachAttribute(b[tcpMessageLen:], func(kind uint16, info []byte) {
		if kind != inetInfo || len(info) < infoLen {
			return
		}
		s.Retransmits = int(info[infoRetransmits])
		s.LastAck = time.Duration(word(info, infoLastAck)) * time.Millisecond
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
