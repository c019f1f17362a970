package evidence

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/evidencetest"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

func sampleConnections(t *testing.T, c *connectionsSource) health.Connections {
	t.Helper()
	c.rest = time.Time{}
	got, err := c.gather(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return *got
}

// TestConnectionsUnread: the runtime does not read what it is sent.
func TestConnectionsUnread(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	l := evidencetest.ListenAt(t, path, 9)
	clients := evidencetest.Connect(t, path, 3)
	c := newConnectionsSource(node.NewTable("/proc"), at(path))
	if got := sampleConnections(t, c); got.Accepted != 0 || got.Unread != 0 {
		t.Errorf("none accepted: %+v", got)
	}
	ends := []int{l.Accept(), l.Accept()}
	if got := sampleConnections(t, c); got.Accepted != 2 || got.Unread != 0 || !got.UnreadSince.IsZero() || got.Stuck != nil {
		t.Errorf("two accepted: %+v", got)
	}
	for _, cl := range clients {
		if _, err := cl.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	first := sampleConnections(t, c)
	if first.Accepted != 2 || first.Unread != 2 || first.UnreadBytes != 200 || !first.UnreadSince.Equal(first.At) {
		t.Errorf("100 bytes each: %+v", first)
	}
	read(t, ends[0])
	if got := sampleConnections(t, c); got.Unread != 1 || got.UnreadBytes != 100 || !got.UnreadSince.Equal(first.UnreadSince) {
		t.Errorf("one has read: %+v, want unread since %v", got, first.UnreadSince)
	}
	read(t, ends[1])
	if got := sampleConnections(t, c); got.Unread != 0 || got.UnreadBytes != 0 || !got.UnreadSince.IsZero() {
		t.Errorf("both have: %+v", got)
	}
	l.Close()
	if got := sampleConnections(t, c); got.Accepted != 2 {
		t.Errorf("no listener any more, the connections live: %+v", got)
	}
}

func read(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.Read(fd, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
}

// TestConnectionsStuckClient: another process does not read, until it does.
func TestConnectionsStuckClient(t *testing.T) {
	needUnixDiag(t)
	comm := filepath.Base(os.Args[0]) // of which the kernel keeps 15 bytes
	comm = comm[:min(len(comm), 15)]
	for _, piece := range []int{4096, 10} {
		t.Run(strconv.Itoa(piece)+" bytes at a time", func(t *testing.T) {
			path := evidencetest.SocketPath(t)
			l := evidencetest.ListenAt(t, path, 9)
			pid, goOn := startClient(t, path)
			end := l.Accept()
			sent := evidencetest.Fill(t, end, piece)

			c := newConnectionsSource(node.NewTable("/proc"), at(path))
			first := sampleConnections(t, c)
			if first.Stuck != nil {
				t.Errorf("one sample does not tell that nothing moves: %+v", first)
			}
			for range 2 {
				got := sampleConnections(t, c)
				if len(got.Stuck) != 1 {
					t.Fatalf("%+v, want one stuck client", got)
				}
				s := got.Stuck[0]
				if s.PID != pid || s.Comm != comm || !strings.Contains("SR", s.State) || s.State == "" {
					t.Errorf("%+v, want pid %d (%s)", s, pid, comm)
				}
				if s.UnreadBytes != sent || s.UnsentBytes < 200_000 || !s.Since.Equal(first.At) {
					t.Errorf("%+v, want %d unread, some 208 KiB unsent, since %v", s, sent, first.At)
				}
			}
			if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() bool {
				got := sampleConnections(t, c)
				return len(got.Stuck) == 1 && got.Stuck[0].State == "T"
			})
			if err := unix.Kill(pid, unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			goOn()
			eventually(t, func() bool { return sampleConnections(t, c).Stuck == nil })
		})
	}
}

// TestConnectionsOwn: the process that watches is judged like any other.
func TestConnectionsOwn(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	l := evidencetest.ListenAt(t, path, 9)
	conns := evidencetest.Connect(t, path, 1)
	evidencetest.Fill(t, l.Accept(), 4096)
	c := newConnectionsSource(node.NewTable("/proc"), at(path))
	sampleConnections(t, c)
	if got := sampleConnections(t, c); len(got.Stuck) != 1 || got.Stuck[0].PID != os.Getpid() {
		t.Errorf("%+v, want pid %d, this process", got, os.Getpid())
	}
	// A client that reads a little moves.
	if _, err := conns[0].Read(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	if got := sampleConnections(t, c); got.Stuck != nil {
		t.Errorf("it has read: %+v", got)
	}
	// And one that has gone away is nobody's trouble.
	_ = conns[0].Close()
	sampleConnections(t, c)
	if got := sampleConnections(t, c); got.Stuck != nil {
		t.Errorf("it has closed: %+v", got)
	}
}

// TestConnectionsIdleClient: somebody connects and never reads the server's
// SETTINGS. That holds up nobody.
func TestConnectionsIdleClient(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	l := evidencetest.ListenAt(t, path, 9)
	evidencetest.Connect(t, path, 1)
	if _, err := unix.Write(l.Accept(), make([]byte, 30)); err != nil {
		t.Fatal(err)
	}
	c := newConnectionsSource(node.NewTable("/proc"), at(path))
	for range 3 {
		if got := sampleConnections(t, c); got.Stuck != nil || got.Accepted != 1 {
			t.Errorf("%+v, want nobody stuck", got)
		}
	}
}

// TestConnectionsMany: of many connections one is stuck.
func TestConnectionsMany(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	l := evidencetest.ListenAt(t, path, 400)
	const n = 200
	conns := evidencetest.Connect(t, path, n)
	ends := make([]int, n)
	for i := range ends {
		ends[i] = l.Accept()
	}
	evidencetest.Fill(t, ends[150], 4096)
	for _, i := range []int{3, 120, 199} {
		if _, err := conns[i].Write(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
	}

	c := newConnectionsSource(node.NewTable("/proc"), at(path))
	sampleConnections(t, c)
	if got := sampleConnections(t, c); got.Accepted != n || got.Unread != 3 || got.UnreadBytes != 30 || len(got.Stuck) != 1 {
		t.Errorf("by a dump: %+v", got)
	}
}

// TestConnectionsRebound: those of the listener that was there before are not
// this one's.
func TestConnectionsRebound(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	old := evidencetest.ListenAt(t, path, 9)
	before := evidencetest.Connect(t, path, 1)
	old.Accept()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l := evidencetest.ListenAt(t, path, 9)
	if _, err := before[0].Write([]byte("to the old one")); err != nil {
		t.Fatal(err)
	}
	after := evidencetest.Connect(t, path, 1)
	l.Accept()
	c := newConnectionsSource(node.NewTable("/proc"), at(path))
	if got := sampleConnections(t, c); got.Unread != 0 {
		t.Errorf("%+v, want the old one's bytes left out", got)
	}
	if _, err := after[0].Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	if got := sampleConnections(t, c); got.Unread != 1 || got.UnreadBytes != 3 {
		t.Errorf("%+v, want 3 bytes", got)
	}
}

// TestConnectionsUnprivileged: the numbers need no privilege; who it is may be
// told only of one's own processes.
func TestConnectionsUnprivileged(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	l := evidencetest.ListenAt(t, path, 9)
	conns := evidencetest.Connect(t, path, 2)
	evidencetest.Fill(t, l.Accept(), 4096)
	l.Accept()
	if _, err := conns[1].Write(make([]byte, 70)); err != nil {
		t.Fatal(err)
	}
	got := lookUnprivileged(t, path)
	c := got.Connections
	if got.ConnectionsErr != "" || c == nil || c.Accepted != 2 || c.Unread != 1 || c.UnreadBytes != 70 || len(c.Stuck) != 1 {
		t.Fatalf("uid %d sees %+v, error %q", got.UID, c, got.ConnectionsErr)
	}
	want := 0
	if os.Getuid() != 0 {
		want = os.Getpid()
	}
	if s := c.Stuck[0]; s.PID != want || s.UnreadBytes < 100_000 {
		t.Errorf("uid %d sees %+v, want pid %d", got.UID, s, want)
	}
}

func TestConnectionsNoPath(t *testing.T) {
	if got, err := newConnectionsSource(node.NewTable("/proc"), at("")).gather(t.Context()); !errors.Is(err, ErrNoData) {
		t.Errorf("%+v, %v, want ErrNoData", got, err)
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("not within 10 s")
		}
	}
}
