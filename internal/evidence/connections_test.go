package evidence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/evidencetest"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
	"github.com/plegd/plegd/internal/health"
)

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }

func sampleConnections(t *testing.T, c *connectionsSource) health.Connections {
	t.Helper()
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
	c := newConnectionsSource("/proc", at(path))
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

			c := newConnectionsSource("/proc", at(path))
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
	c := newConnectionsSource("/proc", at(path))
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
	c := newConnectionsSource("/proc", at(path))
	for range 3 {
		if got := sampleConnections(t, c); got.Stuck != nil || got.Accepted != 1 {
			t.Errorf("%+v, want nobody stuck", got)
		}
	}
}

// TestConnectionsMany: more than are asked about one by one. Each way of asking
// finds the one that is stuck.
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

	c := newConnectionsSource("/proc", at(path))
	sampleConnections(t, c)
	if got := sampleConnections(t, c); got.Accepted != n || got.Unread != 3 || got.UnreadBytes != 30 || len(got.Stuck) != 1 {
		t.Errorf("by a dump: %+v", got)
	}

	// In a table too large for a dump it is found in its turn, and kept.
	table, err := sockdiag.ReadTable(t.Context(), "/proc", []string{path})
	if err != nil {
		t.Fatal(err)
	}
	table.Rows = tableRows + 1
	c = newConnectionsSource("/proc", at(path))
	asked := map[uint32]bool{}
	since := time.Time{}
	for i := range 12 {
		pairs, err := c.pairs(t.Context(), table)
		if err != nil || len(pairs) != endsAtOnce {
			t.Fatalf("%d pairs, %v", len(pairs), err)
		}
		for _, e := range pairs {
			asked[e.server.Inode] = true
		}
		stuck := c.stuck(t.Context(), pairs, time.Unix(int64(i), 0))
		if i < 5 {
			if len(stuck) == 1 && since.IsZero() {
				since = stuck[0].Since
			}
			continue
		}
		if len(stuck) != 1 || !stuck[0].Since.Equal(since) {
			t.Errorf("sample %d: %+v, want it stuck since %v", i, stuck, since)
		}
	}
	if len(asked) != n {
		t.Errorf("%d of %d had their turn", len(asked), n)
	}
}

// TestConnectionsPairs: one by one and in a dump the answer is the same.
func TestConnectionsPairs(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	l := evidencetest.ListenAt(t, path, 9)
	evidencetest.Connect(t, path, 3)
	evidencetest.Fill(t, l.Accept(), 4096)
	end, _, err := unix.Accept4(l.FD, unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(end, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	gone := uint32(evidencetest.InodeOf(t, end))
	table, err := sockdiag.ReadTable(t.Context(), "/proc", []string{path})
	if err != nil {
		t.Fatal(err)
	}
	c := newConnectionsSource("/proc", at(path))
	ask := func(rows int) map[uint32]connection {
		table.Rows = rows
		pairs, err := c.pairs(t.Context(), table)
		if err != nil {
			t.Fatal(err)
		}
		out := map[uint32]connection{}
		for _, e := range pairs {
			// A client's queue and inode count; a question asks for nothing else.
			e.client = sockdiag.Socket{Inode: e.client.Inode, RQueue: e.client.RQueue}
			out[e.server.Inode] = e
		}
		return out
	}
	byDump, single := ask(0), ask(tableRows)
	if diff := cmp.Diff(byDump, single, cmp.AllowUnexported(connection{}, sockdiag.Socket{}, sockdiag.FileID{})); diff != "" || len(single) != 2 {
		t.Errorf("%d, %s", len(single), diff)
	}
	if err := unix.Close(end); err != nil {
		t.Fatal(err)
	}
	for _, rows := range []int{0, tableRows} {
		if got := ask(rows); len(got) != 1 || got[gone].server.Inode != 0 {
			t.Errorf("one closed since the table was read: %+v", got)
		}
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
	c := newConnectionsSource("/proc", at(path))
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
	if got, err := newConnectionsSource("/proc", at("")).gather(t.Context()); !errors.Is(err, ErrNoData) {
		t.Errorf("%+v, %v, want ErrNoData", got, err)
	}
}

// TestHolders remembers who holds a socket, and who cannot be found.
func TestHolders(t *testing.T) {
	conns := evidencetest.ListenAt(t, evidencetest.SocketPath(t), 1)
	inode := uint32(conns.Inode())
	h := holders{procfs: "/proc"}
	got := h.of(t.Context(), []uint32{inode, 1})
	if got[inode].pid != os.Getpid() || got[inode].comm == "" || got[1].pid != 0 {
		t.Errorf("%+v", got)
	}
	first := h.known[1].at
	h.of(t.Context(), []uint32{inode, 1})
	if !h.known[1].at.Equal(first) {
		t.Error("searched again at once for a socket that nobody holds")
	}
	// Another process has the pid now.
	f := h.known[inode]
	f.holder.start = "1"
	h.known[inode] = f
	if got := h.of(t.Context(), []uint32{inode}); got[inode].pid != os.Getpid() || got[inode].start == "1" {
		t.Errorf("%+v", got)
	}
	if len(h.known) != 1 {
		t.Errorf("%d remembered, want only those asked about", len(h.known))
	}
	if got := (&holders{procfs: t.TempDir() + "/none"}).of(t.Context(), []uint32{inode}); got[inode].pid != 0 {
		t.Errorf("no procfs, and yet %+v", got)
	}
}

// TestHoldersInTime: where the time is not enough for all processes, the next search
// looks at the others; for another socket it begins at the first.
func TestHoldersInTime(t *testing.T) {
	procfs := t.TempDir()
	for pid, inode := range map[int]int{10: 70, 20: 71, 30: 72} {
		dir := proc.Path(procfs, pid, "fd")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(dir, "3")); err != nil {
			t.Fatal(err)
		}
		stat := fmt.Sprintf("%d (client) T 1%s", pid, strings.Repeat(" 7", 18))
		if err := os.WriteFile(proc.Path(procfs, pid, "stat"), []byte(stat), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no time: one process a search
	h := holders{procfs: procfs}
	for i, want := range []struct {
		inodes []uint32
		pids   []int
	}{
		{[]uint32{72, 73}, []int{0, 0}},
		{[]uint32{72, 73}, []int{0, 0}},
		{[]uint32{72, 73}, []int{30, 0}},
		{[]uint32{72, 70}, []int{30, 10}},
	} {
		got := h.of(ctx, want.inodes)
		for j, inode := range want.inodes {
			if got[inode].pid != want.pids[j] {
				t.Errorf("search %d: %+v, want pid %d for %d", i, got, want.pids[j], inode)
			}
		}
	}
}

func TestParseHolder(t *testing.T) {
	nums := strings.Repeat(" 7", 17) + " 4711 8 9"
	got, err := parseHolder(5, []byte("5 (a) R (b) S 1"+nums+"\n"))
	if want := (holder{pid: 5, comm: "a) R (b", state: "S", start: "4711"}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, s := range []string{"", "5", "5 (a", ")(", "5 (a) S 1 2", "5 (a) SS 1" + nums} {
		if got, err := parseHolder(5, []byte(s)); err == nil {
			t.Errorf("%q: %+v, want an error", s, got)
		}
	}
	for link, want := range map[string]uint32{"socket:[12]": 12, "socket:[]": 0, "socket:[4294967296]": 0, "pipe:[12]": 0, "socket:[12": 0} {
		if n, ok := proc.SocketInode(link); ok != (want != 0) || ok && n != want {
			t.Errorf("%s: %d, %v", link, n, ok)
		}
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

func BenchmarkConnectionsSample(b *testing.B) {
	for _, n := range []int{4, 60, 400} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			needUnixDiag(b)
			path := evidencetest.SocketPath(b)
			l := evidencetest.ListenAt(b, path, n)
			evidencetest.Connect(b, path, n)
			for range n {
				l.Accept()
			}
			c := newConnectionsSource("/proc", at(path))
			b.ReportAllocs()
			for b.Loop() {
				if got, err := c.gather(b.Context()); err != nil || got.Accepted != n {
					b.Fatal(got, err)
				}
			}
		})
	}
}
