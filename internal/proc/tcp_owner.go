package proc

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

const (
	tcpRequestLen = 56 // struct inet_diag_req_v2 of linux/inet_diag.h
	tcpMessageLen = 72 // struct inet_diag_msg
	tcpSocketID   = 4  // offset of the message's struct inet_diag_sockid, 8 in the request
	tcpUID        = 64 // offset of idiag_uid in the message
	tcpTimeout    = 100 * time.Millisecond
)

// TCPOwner returns the user that made the TCP socket with these addresses, in the network
// namespace of this process.
func TCPOwner(ctx context.Context, local, remote netip.AddrPort) (uid uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, tcpTimeout)
	defer cancel()
	id := tcpID(local, remote)
	answers, err := sockDiag(ctx, 0, tcpRequest(local, id))
	if err != nil {
		return 0, fmt.Errorf("the TCP socket %s: %w", local, err)
	}
	if len(answers) != 1 || len(answers[0].Data) < tcpMessageLen {
		return 0, errCutOff
	}
	found := answers[0].Data
	// Without a connection from the port the kernel returns a listener on it.
	if string(found[tcpSocketID:tcpSocketID+len(id)]) != string(id) {
		return 0, fmt.Errorf("sock_diag: no TCP socket %s to %s", local, remote)
	}
	return binary.NativeEndian.Uint32(found[tcpUID:]), nil
}

// tcpID is the begin of struct inet_diag_sockid: ports and addresses.
func tcpID(local, remote netip.AddrPort) []byte {
	id := make([]byte, 36)
	binary.BigEndian.PutUint16(id, local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	copy(id[4:20], local.Addr().Unmap().AsSlice())
	copy(id[20:36], remote.Addr().Unmap().AsSlice())
	return id
}

// tcpRequest is a request for one socket.
func tcpRequest(local netip.AddrPort, id []byte) []byte {
	request := make([]byte, tcpRequestLen)
	request[0] = unix.AF_INET
	if local.Addr().Unmap().Is6() {
		request[0] = unix.AF_INET6
	}
	request[1] = unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(request[4:], ^uint32(0)) // states: any
	copy(request[8:], id)
	binary.NativeEndian.PutUint64(request[48:], ^uint64(0)) // INET_DIAG_NOCOOKIE
	return request
}
