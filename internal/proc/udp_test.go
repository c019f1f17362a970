package proc

import (
	"net"
	"net/netip"
	"testing"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestReadUDP: the unread datagrams of a server, and the clients that are connected to it.
func TestReadUDP(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		server, err := net.ListenPacket("udp", address)
		must.Do(t, err)
		client, err := net.Dial("udp", server.LocalAddr().String())
		must.Do(t, err)
		serverAt := func() (out UDPServer) {
			all, err := ReadUDP(t.Context())
			must.Do(t, err)
			for _, s := range all {
				if s.Name == server.LocalAddr().String() {
					out = s
				}
			}
			return out
		}
		check.Equal(t, serverAt().RQueue, 0, "nothing is sent")
		_, err = client.Write([]byte("question"))
		must.Do(t, err)
		found := serverAt()
		check.Equal(t, found.RQueue > 0, true, "a datagram is not read")
		check.Equal(t, found.Inode, inodeOf(t, server.(*net.UDPConn)), "the server's socket")
		check.Same(t, found.Clients, []uint32{inodeOf(t, client.(*net.UDPConn))}, "its clients")
		_, _, err = server.ReadFrom(make([]byte, 100))
		must.Do(t, err)
		check.Equal(t, serverAt().RQueue, 0, "it is read")
		must.Do(t, client.Close())
		must.Do(t, server.Close())
	}
}

// TestReaches: a server that takes datagrams at any address of the node is reached by its own addresses only.
func TestReaches(t *testing.T) {
	for _, tt := range []struct {
		local, remote, server string
		want                  bool
	}{
		{"10.0.0.1:4000", "10.0.0.9:53", "10.0.0.9:53", true},
		{"127.0.0.1:4000", "127.0.0.1:53", "0.0.0.0:53", true},
		{"10.0.0.1:4000", "10.0.0.1:53", "0.0.0.0:53", true},
		{"10.0.0.1:4000", "10.0.0.9:53", "0.0.0.0:53", false},
		{"10.0.0.1:4000", "10.0.0.1:54", "0.0.0.0:53", false},
		{"10.0.0.1:4000", "10.0.0.8:53", "10.0.0.9:53", false},
	} {
		client := TCPSocket{Local: netip.MustParseAddrPort(tt.local), Remote: netip.MustParseAddrPort(tt.remote)}
		check.Equal(t, reaches(client, netip.MustParseAddrPort(tt.server)), tt.want, "%+v", tt)
	}
}
