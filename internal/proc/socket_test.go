package proc

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestEach asks the kernel about sockets of its own, also more than fit into one piece.
func TestEach(t *testing.T) {
	path := evidencetest.SocketPath(t)
	for i := range 300 {
		evidencetest.ListenAt(t, path+strings.Repeat("x", i%30)+string(rune('a'+i/30)), i)
	}
	l := evidencetest.ListenAt(t, path, 7)
	clients := evidencetest.Connect(t, path, 2)
	end := l.Accept()
	if _, err := clients[0].Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	all := map[uint32]Socket{}
	listeners := 0
	err := EachSocket(t.Context(), 1<<Established|1<<Listening, func(s Socket) {
		all[s.Inode] = s
		if s.Listens() && strings.HasPrefix(s.Name, path) {
			listeners++
		}
	})
	evidencetest.NeedUnixDiag(t, err)
	check.Equal(t, listeners, 301, "listeners")
	s := all[uint32(l.Inode())]
	if !s.Listens() || s.Name != path || s.RQueue != 1 || s.WQueue != 7 {
		t.Errorf("listener: %+v", s)
	}
	var st unix.Stat_t
	must.Do(t, unix.Stat(path, &st))
	if file := (FileID{Device: st.Dev, Inode: uint32(st.Ino)}); s.File != file {
		t.Errorf("stat says %+v, sock_diag %+v: the same file, compared wrongly (or a file system that numbers it twice)", file, s.File)
	}
	e := all[uint32(evidencetest.InodeOf(t, end))]
	if e.State != Established || e.Name != path || e.File != s.File || e.RQueue != 100 || e.WQueue != 0 {
		t.Errorf("the server's end: %+v", e)
	}
	if c := all[e.Peer]; c.Peer != e.Inode || c.Name != "" || c.WQueue < 100 {
		t.Errorf("the client's end: %+v: want at least 100 unsent", c)
	}
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if err := EachSocket(late, 1<<Listening, func(Socket) {}); err == nil {
		t.Error("out of time, and yet an answer")
	}
}

// TestParseDiag decodes answers as Linux 6.18 gives them.
func TestParseDiag(t *testing.T) {
	tests := map[string]Socket{
		"listener.bin": {
			Inode: 640491, Kind: unix.SOCK_STREAM, State: Listening, Cookie: 1, Name: "/run/r.sock",
			File: FileID{Device: unix.Mkdev(254, 0), Inode: 9978417}, RQueue: 3, WQueue: 4,
		},
		"server_end.bin": {
			Inode: 640500, Kind: unix.SOCK_STREAM, State: Established, Cookie: 2, Name: "/run/r.sock",
			File: FileID{Device: unix.Mkdev(254, 0), Inode: 9978417}, Peer: 640492, RQueue: 1000, WQueue: 214016,
		},
		"client_end.bin": {
			Inode: 640492, Kind: unix.SOCK_STREAM, State: Established, Cookie: 3,
			Peer: 640500, RQueue: 180224, WQueue: 2304,
		},
		"abstract.bin": {Inode: 7, Kind: unix.SOCK_STREAM, State: Listening, Cookie: 9, Name: "@a\x00b", WQueue: 5},
	}
	for name, want := range tests {
		b, err := os.ReadFile(filepath.Join("testdata/sockdiag", name))
		must.Do(t, err)
		got, err := parseDiag(b)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
		for cut := range b {
			// Cut between two attributes it reads as a shorter answer; never more
			// than that, and never a panic.
			if s, err := parseDiag(b[:cut]); err == nil && s.Inode != want.Inode {
				t.Errorf("%s cut to %d bytes: %+v", name, cut, s)
			}
		}
	}
}

func FuzzSockDiag(f *testing.F) {
	for _, name := range []string{"listener", "server_end", "client_end", "abstract"} {
		b, err := os.ReadFile("testdata/sockdiag/" + name + ".bin")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseDiag(b); err != nil && s != (Socket{}) || len(s.Name) > len(b) {
			t.Errorf("%x: %+v, %v", b, s, err)
		}
	})
}

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
			conn := evidencetest.DialAs(t, uid, l.Addr().String())
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

// TestReadTCP: what a server does not read, before it accepts and after, and nothing that a client does not.
func TestReadTCP(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		must.Do(t, err)
		client, err := net.Dial("tcp", l.Addr().String())
		must.Do(t, err)
		_, err = client.Write([]byte("abc"))
		must.Do(t, err)
		want := Socket{Kind: unix.SOCK_STREAM, State: Established, Name: l.Addr().String(), Inode: inodeOf(t, l.(*net.TCPListener)), Peer: inodeOf(t, client.(*net.TCPConn)), RQueue: 3}
		check.Equal(t, unreadAt(t, want.Name), want, "not accepted")
		server, err := l.Accept()
		must.Do(t, err)
		want.Inode = inodeOf(t, server.(*net.TCPConn))
		check.Equal(t, unreadAt(t, want.Name), want, "not read")
		_, err = io.ReadFull(server, make([]byte, 3))
		must.Do(t, err)
		_, err = server.Write([]byte("abc"))
		must.Do(t, err)
		check.Equal(t, unreadAt(t, want.Name), Socket{}, "read, and answered")
		others, err := ReadTCP(t.Context(), nil)
		must.Do(t, err)
		check.Equal(t, others.Others[want.Peer], true, "another's connection")
		check.Equal(t, others.Others[want.Inode], false, "another's connection, of a server")
		owned, err := ReadTCP(t.Context(), map[uint32]bool{want.Peer: true, want.Inode: true})
		must.Do(t, err)
		check.Equal(t, owned.Others[want.Peer], false, "a connection of its own")
		connections := owned.Clients
		check.Equal(t, len(connections), 1, "connections to servers")
		check.Equal(t, connections[0].Server, want.Inode, "the server's end")
		times, err := ReadTimes(t.Context(), connections[0].TCPSocket)
		must.Do(t, err)
		check.Equal(t, times.Received, uint64(3), "bytes of the answer")
		check.Equal(t, times.Acked, uint64(1+3), "the SYN, and bytes of the request")
		connections[0].Cookie++
		_, err = ReadTimes(t.Context(), connections[0].TCPSocket)
		check.Equal(t, err != nil, true, "another connection with these addresses is none")
		_ = server.Close()
		_ = client.Close()
		_ = l.Close()
	}
}

// TestUnansweredConnect: an attempt to connect to a listener that takes no more is one to its server.
func TestUnansweredConnect(t *testing.T) {
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	must.Do(t, err)
	t.Cleanup(func() { _ = unix.Close(listener) })
	must.Do(t, unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must.Do(t, unix.Listen(listener, 0))
	address, err := unix.Getsockname(listener)
	must.Do(t, err)
	attempts := map[uint32]bool{}
	for range 4 { // more than it takes
		client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		must.Do(t, err)
		t.Cleanup(func() { _ = unix.Close(client) })
		err = unix.Connect(client, address)
		if err != nil && !errors.Is(err, unix.EINPROGRESS) {
			t.Fatal(err)
		}
		attempts[statInode(t, client)] = true
	}
	all, err := ReadTCP(t.Context(), attempts)
	must.Do(t, err)
	unanswered := 0
	for _, c := range all.Clients {
		if c.State != SynSent {
			continue
		}
		unanswered++
		check.Equal(t, c.Server, statInode(t, listener), "the server")
	}
	check.Equal(t, unanswered > 0, true, "attempts that are not answered")
}

func statInode(t *testing.T, fd int) uint32 {
	t.Helper()
	var st unix.Stat_t
	must.Do(t, unix.Fstat(fd, &st))
	return uint32(st.Ino)
}

// TestTCPDump: one request for both families has the answers of one for each, with the port and the times asked for.
func TestTCPDump(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		must.Do(t, err)
		client, err := net.Dial("tcp", l.Addr().String())
		must.Do(t, err)
		port := addrPort(l.Addr()).Port()
		together, err := tcpDump(t.Context(), port, 1<<Established, 1<<(inetInfo-1))
		must.Do(t, err)
		apart, err := dumpByFamily(t.Context(), unix.IPPROTO_TCP, port, 1<<Established, 1<<(inetInfo-1))
		must.Do(t, err)
		inode := inodeOf(t, client.(*net.TCPConn))
		got, known := socketIn(t, together, inode), socketIn(t, apart, inode)
		check.Equal(t, got.Local, known.Local, "the end of %s", address)
		check.Equal(t, got.Remote, addrPort(l.Addr()), "the other end of %s", address)
		check.Equal(t, got.Acked, uint64(1), "the SYN: the times are there")
		check.Equal(t, len(together), len(apart), "the port is the other end's")
		_ = client.Close()
		_ = l.Close()
	}
}

// socketIn returns the socket with an inode.
func socketIn(t *testing.T, answers []netlink.Message, inode uint32) (found TCPSocket) {
	t.Helper()
	must.Do(t, eachTCP(answers, func(s TCPSocket) {
		if s.Inode == inode {
			found = s
		}
	}))
	return found
}

// unreadAt returns the socket of ReadTCP with a name, without its cookie.
func unreadAt(t *testing.T, name string) (out Socket) {
	t.Helper()
	all, err := ReadTCP(t.Context(), nil)
	must.Do(t, err)
	for _, s := range all.Unread {
		if s.Name == name {
			out = s
			out.Cookie = 0
		}
	}
	return out
}

func inodeOf(t *testing.T, c syscall.Conn) uint32 {
	t.Helper()
	raw, err := c.SyscallConn()
	must.Do(t, err)
	var st unix.Stat_t
	must.Do(t, raw.Control(func(fd uintptr) { must.Do(t, unix.Fstat(int(fd), &st)) }))
	return uint32(st.Ino)
}

func addrPort(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }
