package sockdiag

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/evidencetest"
)

// TestDiagConn asks the kernel about sockets of its own.
func TestDiagConn(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	l := evidencetest.ListenAt(t, path, 7)
	clients := evidencetest.Connect(t, path, 2)
	end := l.Accept()
	if _, err := clients[0].Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}

	var d Conn
	t.Cleanup(d.Close)
	one := func(inode uint32, state, show uint32) (out Socket, err error) {
		err = d.All(t.Context(), 1<<state, show, func(s Socket) {
			if s.Inode == inode {
				out = s
			}
		})
		return out, err
	}
	s, err := one(uint32(l.Inode()), Listening, ShowListener)
	if err != nil || !s.Listens() || s.Name != path || s.RQueue != 1 || s.WQueue != 7 {
		t.Errorf("listener: %+v, %v", s, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	if file := (FileID{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev), Inode: uint32(st.Ino)}); s.File != file {
		t.Errorf("stat says %+v, sock_diag %+v: the same file, compared wrongly (or a file system that numbers it twice)", file, s.File)
	}
	e, err := one(uint32(evidencetest.InodeOf(t, end)), Established, ShowEnd)
	if err != nil || e.State != Established || e.Name != path || e.File != s.File || e.RQueue != 100 || e.WQueue != 0 {
		t.Errorf("the server's end: %+v, %v", e, err)
	}
	c, err := one(e.Peer, Established, ShowEnd)
	if err != nil || c.Peer != e.Inode || c.Name != "" || c.WQueue < 100 {
		t.Errorf("the client's end: %+v, %v: want at least 100 unsent", c, err)
	}
}

// TestDiagConnDump tells all sockets of a state, also where they take more than
// one piece.
func TestDiagConnDump(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	want := map[uint32]bool{}
	for i := range 300 {
		l := evidencetest.ListenAt(t, path+strings.Repeat("x", i%30)+string(rune('a'+i/30)), i)
		want[uint32(l.Inode())] = true
	}
	var d Conn
	t.Cleanup(d.Close)
	for range 3 {
		seen := 0
		err := d.All(t.Context(), 1<<Listening, ShowListener, func(s Socket) {
			if !s.Listens() && s.State != Listening {
				t.Errorf("%+v does not listen", s)
			}
			if want[s.Inode] {
				seen++
			}
		})
		if err != nil || seen != len(want) {
			t.Fatalf("%d of %d, %v", seen, len(want), err)
		}
	}
}

// TestDiagConnReopens: after an error, and when its time is over, the next
// request gets its own answer.
func TestDiagConnReopens(t *testing.T) {
	needUnixDiag(t)
	l := evidencetest.ListenAt(t, evidencetest.SocketPath(t), 3)
	var d Conn
	t.Cleanup(d.Close)
	queue := func(ctx context.Context) (n uint32, err error) {
		err = d.All(ctx, 1<<Listening, showRQLen, func(s Socket) {
			if s.Inode == uint32(l.Inode()) {
				n = s.WQueue
			}
		})
		return n, err
	}
	for range 3 {
		late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		if n, err := queue(late); err == nil {
			t.Errorf("out of time, and yet %d", n)
		}
		cancel()
		if n, err := queue(t.Context()); err != nil || n != 3 {
			t.Fatalf("after that: %d, %v", n, err)
		}
		// An answer that was not read must not be the next one's.
		header := netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request | netlink.Dump}
		if _, err := d.conn.Send(netlink.Message{Header: header, Data: diagRequest(1<<Listening, showRQLen)}); err != nil {
			t.Fatal(err)
		}
		if n, err := queue(t.Context()); err == nil {
			t.Errorf("another's answer was taken: %d", n)
		}
	}
}

// needUnixDiag skips where the kernel has no unix_diag.
func needUnixDiag(tb testing.TB) {
	tb.Helper()
	var d Conn
	defer d.Close()
	evidencetest.NeedUnixDiag(tb, d.Open)
}
