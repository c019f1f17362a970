package proc

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/must"
)

// TestTCPOwner: the user of a client's socket, over both families.
func TestTCPOwner(t *testing.T) {
	uids := []int{os.Getuid()}
	if os.Getuid() == 0 {
		uids = append(uids, 65534)
	}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		must.Do(t, err)
		for _, uid := range uids {
			conn := dialAs(t, uid, l.Addr().String())
			local, remote := addrPort(conn.LocalAddr()), addrPort(conn.RemoteAddr())
			if got, err := TCPOwner(t.Context(), local, remote); err != nil || int(got) != uid {
				t.Errorf("%s: the owner is %d, %v, want %d", address, got, err, uid)
			}
			unknown := netip.AddrPortFrom(remote.Addr(), 1)
			if got, err := TCPOwner(t.Context(), local, unknown); err == nil {
				t.Errorf("%s: a connection that does not exist belongs to %d", address, got)
			}
			_ = conn.Close()
		}
		listener := addrPort(l.Addr())
		if got, err := TCPOwner(t.Context(), listener, netip.AddrPortFrom(listener.Addr(), 1)); err == nil {
			t.Errorf("%s: the listener counts as a connection of %d", address, got)
		}
		_ = l.Close()
	}
}

// dialAs connects by a socket of another user.
func dialAs(t *testing.T, uid int, address string) net.Conn {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	self, err := unix.SetfsuidRetUid(uid)
	must.Do(t, err)
	defer func() { _, _ = unix.SetfsuidRetUid(self) }()
	conn, err := net.Dial("tcp", address)
	must.Do(t, err)
	return conn
}

func addrPort(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }
