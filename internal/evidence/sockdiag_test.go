package evidence

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/fuzzcorpus"
)

// TestParseDiag decodes answers as Linux 6.18 gives them.
func TestParseDiag(t *testing.T) {
	tests := map[string]diagSocket{
		"listener.bin": {
			inode: 640491, kind: unix.SOCK_STREAM, state: stateListen, cookie: 1, name: "/run/r.sock",
			file: fileID{major: 254, inode: 9978417}, rqueue: 3, wqueue: 4,
		},
		"server_end.bin": {
			inode: 640500, kind: unix.SOCK_STREAM, state: stateEstablished, cookie: 2, name: "/run/r.sock",
			file: fileID{major: 254, inode: 9978417}, peer: 640492, rqueue: 1000, wqueue: 214016,
		},
		"client_end.bin": {
			inode: 640492, kind: unix.SOCK_STREAM, state: stateEstablished, cookie: 3,
			peer: 640500, rqueue: 180224, wqueue: 2304,
		},
		"abstract.bin": {inode: 7, kind: unix.SOCK_STREAM, state: stateListen, cookie: 9, name: "@a\x00b", wqueue: 5},
	}
	for name, want := range tests {
		b, err := os.ReadFile(filepath.Join("testdata/sockdiag", name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseDiag(b)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
		for cut := range b {
			// Cut between two attributes it reads as a shorter answer; never more
			// than that, and never a panic.
			if s, err := parseDiag(b[:cut]); err == nil && s.inode != want.inode {
				t.Errorf("%s cut to %d bytes: %+v", name, cut, s)
			}
		}
	}
}

func TestParseDiagRefuses(t *testing.T) {
	head := make([]byte, diagMessageLen)
	head[0] = unix.AF_UNIX
	attr := func(length, kind uint16, v ...byte) []byte {
		b := binary.NativeEndian.AppendUint16(append([]byte(nil), head...), length)
		return append(binary.NativeEndian.AppendUint16(b, kind), v...)
	}
	for name, b := range map[string][]byte{
		"nothing":                {},
		"half a message":         head[:8],
		"another family":         append([]byte{unix.AF_INET}, head[1:]...),
		"half an attribute":      append(append([]byte(nil), head...), 4, 0),
		"length 0":               attr(0, attrName),
		"length of less":         attr(3, attrName),
		"length past the end":    attr(100, attrName, 'x'),
		"a queue of 4 bytes":     attr(8, attrRQLen, 1, 2, 3, 4),
		"a peer of none":         attr(4, attrPeer),
		"a file of 7 bytes":      attr(11, attrVFS, 1, 2, 3, 4, 5, 6, 7),
		"a queue of the longest": attr(0xffff, attrRQLen, 1, 2, 3, 4),
	} {
		if s, err := parseDiag(b); err == nil {
			t.Errorf("%s: %+v, want an error", name, s)
		}
	}
	if s, err := parseDiag(attr(6, 4711, 1, 2)); err != nil || s.rqueue != 0 {
		t.Errorf("an attribute of a newer kernel: %+v, %v, want it passed over", s, err)
	}
}

func FuzzSockDiag(f *testing.F) {
	fuzzcorpus.Add(f)
	seeds, err := filepath.Glob("testdata/sockdiag/*.bin")
	if err != nil || len(seeds) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, name := range seeds {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseDiag(b)
		if err != nil {
			if s != (diagSocket{}) {
				t.Errorf("%v, and yet %+v", err, s)
			}
			return
		}
		if len(b) < diagMessageLen || b[0] != unix.AF_UNIX {
			t.Errorf("%x was taken for a socket", b)
		}
		if len(s.name) > len(b) {
			t.Errorf("a name of %d bytes in %d", len(s.name), len(b))
		}
	})
}

// TestDiagConn asks the kernel about sockets of its own.
func TestDiagConn(t *testing.T) {
	needUnixDiag(t)
	path := socketPath(t)
	l := listenAt(t, path, 7)
	clients := connect(t, path, 2)
	end := l.accept()
	if _, err := clients[0].Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}

	var d diagConn
	t.Cleanup(d.close)
	s, err := d.one(t.Context(), uint32(l.inode()), showListener)
	if err != nil || !s.listens() || s.name != path || s.rqueue != 1 || s.wqueue != 7 {
		t.Errorf("listener: %+v, %v", s, err)
	}
	if p := lookAt(path); !p.exists || s.file != p.file {
		t.Errorf("stat says %+v, sock_diag %+v: the same file, compared wrongly (or a file system that numbers it twice)", p.file, s.file)
	}
	e, err := d.one(t.Context(), uint32(inodeOf(t, end)), showEnd)
	if err != nil || e.state != stateEstablished || e.name != path || e.file != s.file || e.rqueue != 100 || e.wqueue != 0 {
		t.Errorf("the server's end: %+v, %v", e, err)
	}
	c, err := d.one(t.Context(), e.peer, showEnd)
	if err != nil || c.peer != e.inode || c.name != "" || c.wqueue < 100 {
		t.Errorf("the client's end: %+v, %v: want at least 100 unsent", c, err)
	}

	held := d.conn
	l.close()
	if s, err := d.one(t.Context(), s.inode, showListener); !errors.Is(err, errSocketGone) {
		t.Errorf("after close: %+v, %v, want errSocketGone", s, err)
	}
	if s, err := d.one(t.Context(), 0, showListener); !errors.Is(err, errSocketGone) {
		t.Errorf("inode 0: %+v, %v, want errSocketGone", s, err)
	}
	if d.conn != held {
		t.Error("a socket that is gone is no reason to open netlink anew")
	}
}

// TestDiagConnDump tells all sockets of a state, also where they take more than
// one piece.
func TestDiagConnDump(t *testing.T) {
	needUnixDiag(t)
	path := socketPath(t)
	want := map[uint32]bool{}
	for i := range 300 {
		l := listenAt(t, path+strings.Repeat("x", i%30)+string(rune('a'+i/30)), i)
		want[uint32(l.inode())] = true
	}
	var d diagConn
	t.Cleanup(d.close)
	for range 3 {
		seen := 0
		err := d.all(t.Context(), 1<<stateListen, showListener, func(s diagSocket) {
			if !s.listens() && s.state != stateListen {
				t.Errorf("%+v does not listen", s)
			}
			if want[s.inode] {
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
	l := listenAt(t, socketPath(t), 3)
	var d diagConn
	t.Cleanup(d.close)
	for range 3 {
		late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		if s, err := d.one(late, uint32(l.inode()), showRQLen); err == nil {
			t.Errorf("out of time, and yet %+v", s)
		}
		cancel()
		if s, err := d.one(t.Context(), uint32(l.inode()), showRQLen); err != nil || s.wqueue != 3 {
			t.Fatalf("after that: %+v, %v", s, err)
		}
		// An answer that nobody took must not be the next one's.
		if _, err := d.conn.Send(netlink.Message{
			Header: netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request}, Data: diagRequest(uint32(l.inode()), 0, showRQLen),
		}); err != nil {
			t.Fatal(err)
		}
		if s, err := d.one(t.Context(), uint32(l.inode()), showRQLen); err == nil {
			t.Errorf("another's answer was taken: %+v", s)
		}
	}
}

func BenchmarkSockDiagOne(b *testing.B) {
	needUnixDiag(b)
	l := listenAt(b, socketPath(b), 7)
	var d diagConn
	b.Cleanup(d.close)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.one(b.Context(), uint32(l.inode()), showRQLen); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSockDiagDump(b *testing.B) {
	needUnixDiag(b)
	var d diagConn
	b.Cleanup(d.close)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if err := d.all(b.Context(), 1<<stateEstablished, showEnd, func(diagSocket) { n++ }); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(n), "sockets")
	}
}
