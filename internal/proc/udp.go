package proc

import (
	"context"
	"net/netip"

	"golang.org/x/sys/unix"
)

// unconnected is the state of a UDP socket without an other end (TCP_CLOSE of include/net/tcp_states.h).
const unconnected = 7

// UDPServer is a UDP socket that takes datagrams of anybody, and has some that it does not read.
type UDPServer struct {
	// Socket is it, with its address as the name and the memory of its datagrams as RQueue.
	Socket
	// Clients are the inodes of the sockets on this node that are connected to it.
	Clients []uint32
}

// ReadUDP returns such servers in the network namespace of this process.
func ReadUDP(ctx context.Context) (out []UDPServer, err error) {
	answers, err := dumpByFamily(ctx, unix.IPPROTO_UDP, 0, 1<<Established|1<<unconnected, 0)
	if err != nil {
		return nil, err
	}
	var clients, servers []TCPSocket
	err = eachTCP(answers, func(s TCPSocket) {
		switch {
		case s.State == Established:
			clients = append(clients, s)
		case s.Unread > 0:
			servers = append(servers, s)
		}
	})
	for _, server := range servers {
		found := UDPServer{Socket: Socket{
			Inode: server.Inode, Kind: unix.SOCK_DGRAM, State: server.State, Cookie: server.Cookie,
			Name: server.Local.String(), RQueue: server.Unread,
		}}
		for _, client := range clients {
			if reaches(client, server.Local) {
				found.Clients = append(found.Clients, client.Inode)
			}
		}
		out = append(out, found)
	}
	return out, err
}

// reaches reports whether the other end of a socket is a server of this node at an address, which may be any of the node's.
func reaches(client TCPSocket, server netip.AddrPort) bool {
	if client.Remote == server {
		return true
	}
	remote := client.Remote.Addr()
	isOwn := remote.IsLoopback() || remote == client.Local.Addr()
	return server.Addr().IsUnspecified() && client.Remote.Port() == server.Port() && isOwn
}
