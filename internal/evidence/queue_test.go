package evidence

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/evidencetest"
	"github.com/plegd/plegd/internal/health"
)

func sampleQueue(t *testing.T, q *queueSource) health.Queue {
	t.Helper()
	got, err := q.gather(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return *got
}

// TestQueueFillsAndDrains: nobody accepts, the queue fills up, and empties.
func TestQueueFillsAndDrains(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	l := evidencetest.ListenAt(t, path, 4)
	q := newQueueSource(at(path))

	if got := sampleQueue(t, q); !got.Listening || got.Inode != l.Inode() || got.Length != 0 || got.Limit != 4 || !got.WaitingSince.IsZero() {
		t.Errorf("nobody waits: %+v", got)
	}
	evidencetest.Connect(t, path, 3)
	first := sampleQueue(t, q)
	if first.Length != 3 || first.Limit != 4 || !first.WaitingSince.Equal(first.At) {
		t.Errorf("three wait: %+v", first)
	}
	evidencetest.Connect(t, path, 2)
	if got := sampleQueue(t, q); got.Length != 5 || got.Limit != 4 || !got.WaitingSince.Equal(first.WaitingSince) || !got.At.After(first.At) {
		t.Errorf("full, one more than the limit: %+v, want it to wait since %v", got, first.WaitingSince)
	}
	// One more than that does not fit.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("connect to a full queue: %v, want EAGAIN", err)
	}
	_ = unix.Close(fd)

	l.Accept()
	if got := sampleQueue(t, q); got.Length != 4 || !got.WaitingSince.Equal(got.At) || !got.FellAt.Equal(got.At) {
		t.Errorf("one accepted: %+v, want that it fell now, and waits since", got)
	}
	evidencetest.Connect(t, path, 1)
	if got := sampleQueue(t, q); got.Length != 5 || !got.FellAt.Before(got.At) || got.FellAt.IsZero() {
		t.Errorf("one more came: %+v, want that it fell before", got)
	}
	l.Accept()
	for range 4 {
		l.Accept()
	}
	if got := sampleQueue(t, q); got.Length != 0 || !got.WaitingSince.IsZero() {
		t.Errorf("all accepted: %+v", got)
	}
	evidencetest.Connect(t, path, 1)
	if got := sampleQueue(t, q); got.Length != 1 || !got.WaitingSince.Equal(got.At) {
		t.Errorf("another one: %+v, want it to wait since now", got)
	}
	l.Close()
	if got := sampleQueue(t, q); got != (health.Queue{At: got.At}) {
		t.Errorf("closed, its file still there: %+v, want nothing but a time", got)
	}
}

// TestQueueClosedClient: a client that has gone away stays in the queue, which
// is why plegd must not probe a runtime that does not accept.
func TestQueueClosedClient(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	evidencetest.ListenAt(t, path, 4)
	for _, c := range evidencetest.Connect(t, path, 3) {
		_ = c.Close()
	}
	if got := sampleQueue(t, newQueueSource(at(path))); got.Length != 3 {
		t.Errorf("%+v, want 3", got)
	}
}

func TestQueueNobody(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	q := newQueueSource(at(path))
	if got := sampleQueue(t, q); got.Listening {
		t.Errorf("no file: %+v", got)
	}
	// Only bound, never listening.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if got := sampleQueue(t, q); got.Listening {
		t.Errorf("bound only: %+v", got)
	}
	_ = unix.Close(fd)
	if got := sampleQueue(t, q); got.Listening {
		t.Errorf("a stale file: %+v", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := sampleQueue(t, q); got.Listening {
		t.Errorf("a file that is no socket: %+v", got)
	}
	q.path = at("")
	if got, err := q.gather(t.Context()); !errors.Is(err, ErrNoData) {
		t.Errorf("no path: %+v, %v, want ErrNoData", got, err)
	}
}

// TestQueueRebound: a second runtime unlinks the path and binds it again while
// the first still listens. A connect reaches the second.
func TestQueueRebound(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	old := evidencetest.ListenAt(t, path, 3)
	evidencetest.Connect(t, path, 2)
	q := newQueueSource(at(path))
	before := sampleQueue(t, q)
	if before.Inode != old.Inode() || before.Length != 2 {
		t.Fatalf("%+v", before)
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := sampleQueue(t, q); !got.Listening || got.Inode != old.Inode() || got.Length != 2 || !got.WaitingSince.Equal(before.WaitingSince) || !got.ListeningSince.Equal(before.At) {
		t.Errorf("unlinked, process alive: %+v, want still a listener", got)
	}
	fresh := evidencetest.ListenAt(t, path, 5)
	evidencetest.Connect(t, path, 1)
	if got := sampleQueue(t, q); got.Inode != fresh.Inode() || got.Length != 1 || got.Limit != 5 || !got.WaitingSince.Equal(got.At) || !got.ListeningSince.Equal(got.At) {
		t.Errorf("bound again: %+v, want the second, at once, waiting since now", got)
	}
	fresh.Close()
	if got := sampleQueue(t, q); got.Listening {
		t.Errorf("the second closed, its file there: %+v, want no listener: a connect is refused", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := sampleQueue(t, q); !got.Listening || got.Inode != old.Inode() {
		t.Errorf("and its file gone: %+v, want the first, unlinked", got)
	}
}

// TestQueueReboundInOrder: the younger listener need not have the higher inode.
func TestQueueReboundInOrder(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	late := &evidencetest.Listener{TB: t, Path: path, FD: fd} // made first, bound last
	t.Cleanup(late.Close)
	evidencetest.ListenAt(t, path, 3)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 9)); err != nil {
		t.Fatal(err)
	}
	if got := sampleQueue(t, newQueueSource(at(path))); got.Inode != late.Inode() || got.Limit != 9 {
		t.Errorf("%+v, want inode %d", got, late.Inode())
	}
}

// TestQueueSpelledOtherwise: the runtime has bound the path by another name.
func TestQueueSpelledOtherwise(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	dir := filepath.Dir(path)
	link := filepath.Join(dir, "var")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	l := evidencetest.ListenAt(t, path, 1)
	toSocket := filepath.Join(dir, "link.sock")
	if err := os.Symlink("r.sock", toSocket); err != nil {
		t.Fatal(err)
	}
	hard := filepath.Join(dir, "hard.sock")
	if err := os.Link(path, hard); err != nil {
		t.Fatal(err)
	}
	viaLink := evidencetest.ListenAt(t, filepath.Join(link, "s.sock"), 2)
	for name, tt := range map[string]struct {
		path string
		want *evidencetest.Listener
	}{
		"bound as resolved, configured by a link":            {filepath.Join(link, "r.sock"), l},
		"configured by a link to the socket":                 {toSocket, l},
		"another name of the same file, as in another mount": {hard, l},
		"bound by a link, configured as resolved":            {filepath.Join(dir, "s.sock"), viaLink},
		"bound and configured by a link":                     {filepath.Join(link, "s.sock"), viaLink},
	} {
		q := newQueueSource(at(tt.path))
		for range 2 {
			if got := sampleQueue(t, q); got.Inode != tt.want.Inode() {
				t.Errorf("%s: %+v, want inode %d", name, got, tt.want.Inode())
			}
		}
	}
}

// TestQueueSimilarPaths: other sockets have names like it.
func TestQueueSimilarPaths(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	for _, suffix := range []string{".ttrpc", "2", "k", " "} {
		l := evidencetest.ListenAt(t, path+suffix, 9)
		evidencetest.Connect(t, l.Path, 1)
	}
	evidencetest.ListenAt(t, path[:len(path)-1], 9)
	evidencetest.ListenAt(t, "@"+path, 9)
	if got := sampleQueue(t, newQueueSource(at(path))); got.Listening {
		t.Errorf("%+v, want no listener", got)
	}
	l := evidencetest.ListenAt(t, path, 3)
	if got := sampleQueue(t, newQueueSource(at(path))); got.Inode != l.Inode() || got.Length != 0 || got.Limit != 3 {
		t.Errorf("%+v, want inode %d of limit 3", got, l.Inode())
	}
}

// TestQueuePathChanges: another endpoint is configured, or found.
func TestQueuePathChanges(t *testing.T) {
	needUnixDiag(t)
	one, two := evidencetest.ListenAt(t, evidencetest.SocketPath(t), 1), evidencetest.ListenAt(t, evidencetest.SocketPath(t), 2)
	evidencetest.Connect(t, one.Path, 1)
	q := newQueueSource(at(one.Path))
	if got := sampleQueue(t, q); got.Inode != one.Inode() || got.WaitingSince.IsZero() {
		t.Errorf("%+v", got)
	}
	q.path = at(two.Path)
	if got := sampleQueue(t, q); got.Inode != two.Inode() || !got.WaitingSince.IsZero() {
		t.Errorf("%+v", got)
	}
}

// TestQueueDeadFileSystem: stat(2) hangs. The queue is told all the same, and
// one goroutine at most waits for it.
func TestQueueDeadFileSystem(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	l := evidencetest.ListenAt(t, path, 1)
	q := newQueueSource(at(path))
	sampleQueue(t, q)
	release, looks := make(chan struct{}), new(atomic.Int32)
	q.finder.looker.look = func(path string, last socketPlace) socketPlace {
		looks.Add(1)
		<-release
		return lookAt(path, last)
	}
	for range 3 {
		if got := sampleQueue(t, q); got.Inode != l.Inode() {
			t.Errorf("%+v", got)
		}
	}
	// And with nothing known from before.
	cold := newQueueSource(at(path))
	cold.finder.looker.look = func(string, socketPlace) socketPlace { <-release; return socketPlace{} }
	if got := sampleQueue(t, cold); got.Inode != l.Inode() {
		t.Errorf("%+v", got)
	}
	if n := looks.Load(); n != 1 {
		t.Errorf("%d looks, want 1 that is abandoned", n)
	}
	close(release)
	sampleQueue(t, q)
}

// TestQueueUnprivileged: the numbers need no privilege, even where the socket
// may not be connected to.
func TestQueueUnprivileged(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	l := evidencetest.ListenAt(t, path, 4)
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	got := lookUnprivileged(t, path)
	if got.UID == 0 || got.QueueErr != "" || got.Queue == nil || got.Queue.Inode != l.Inode() || got.Queue.Length != 1 || got.Queue.Limit != 4 {
		t.Errorf("uid %d sees %+v, error %q", got.UID, got.Queue, got.QueueErr)
	}
}
