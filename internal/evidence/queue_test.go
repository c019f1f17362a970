package evidence

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// queueAt is the source about the queue at a path.
func queueAt(path func() string) *queueSource {
	return &queueSource{hop: &hop{path: path, dialer: NewDialer(DialOptions{})}, sleep: time.Sleep}
}

func sampleQueue(t *testing.T, q *queueSource) facts.Queue {
	t.Helper()
	got, err := q.gather(t.Context())
	must.Do(t, err)
	return *got
}

// TestQueueFillsAndDrains: nobody accepts, the queue fills up, and empties.
func TestQueueFillsAndDrains(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	l := evidencetest.ListenAt(t, path, 4)
	q := queueAt(at(path))
	var last facts.Queue
	for _, step := range []struct {
		name            string
		connect, accept int
		length          int
		// waits is since when somebody waits: "", "now", or "before", the sample before.
		waits string
		fell  bool
	}{
		{name: "nobody waits"},
		{name: "three wait", connect: 3, length: 3, waits: "now"},
		{name: "full, one more than the limit", connect: 2, length: 5, waits: "before"},
		{name: "one accepted", accept: 1, length: 4, waits: "now", fell: true},
		{name: "one more came", connect: 1, length: 5, waits: "before"},
		{name: "all accepted", accept: 5, fell: true},
		{name: "another one", connect: 1, length: 1, waits: "now"},
	} {
		evidencetest.Connect(t, path, step.connect)
		for range step.accept {
			l.Accept()
		}
		got := sampleQueue(t, q)
		since := map[string]time.Time{"now": got.At, "before": last.WaitingSince}[step.waits]
		if !got.Listening || got.Inode != l.Inode() || got.Limit != 4 || got.Length != step.length || !got.WaitingSince.Equal(since) || got.FellAt.Equal(got.At) != step.fell {
			t.Errorf("%s: %+v, want %d waiting since %v", step.name, got, step.length, since)
		}
		last = got
	}
	l.Close()
	if got := sampleQueue(t, q); got != (facts.Queue{At: got.At}) {
		t.Errorf("closed, its file still there: %+v, want nothing but a time", got)
	}
}

// TestQueueMoment: while all is calm, a connection counts as waiting where the listener does not
// accept it in a moment.
func TestQueueMoment(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	l := evidencetest.ListenAt(t, path, 4)
	q := queueAt(at(path))
	q.hop.calm = func() bool { return true }
	for _, step := range []struct {
		name             string
		connect, accepts int // accepts is how many are accepted within the moment
		length           int
	}{
		{name: "plegd's own probe, accepted at the next turn", connect: 1, accepts: 1},
		{name: "one of two is accepted", connect: 2, accepts: 1, length: 1},
		{name: "another one has come, the first goes on waiting", connect: 1, length: 2},
	} {
		accept := func(time.Duration) {
			for range step.accepts {
				l.Accept()
			}
		}
		q.sleep = accept
		evidencetest.Connect(t, path, step.connect)
		got := sampleQueue(t, q)
		if got.Length != step.length || got.WaitingSince.IsZero() != (step.length == 0) {
			t.Errorf("%s: %+v, want %d waiting", step.name, got, step.length)
		}
	}
}

func TestQueueNobody(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	q := queueAt(at(path))
	var fd int
	for _, step := range []struct {
		name string
		make func() error
	}{
		{"no file", func() error { return nil }},
		{"bound only", func() (err error) {
			if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
				return err
			}
			return unix.Bind(fd, &unix.SockaddrUnix{Name: path})
		}},
		{"a stale file", func() error { return unix.Close(fd) }},
		{"a file that is no socket", func() error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) }},
	} {
		must.Do(t, step.make())
		if got := sampleQueue(t, q); got.Listening {
			t.Errorf("%s: %+v", step.name, got)
		}
	}
	q.hop.path = at("")
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
	q := queueAt(at(path))
	before := sampleQueue(t, q)
	if before.Inode != old.Inode() || before.Length != 2 {
		t.Fatalf("%+v", before)
	}

	must.Do(t, os.Remove(path))
	if got := sampleQueue(t, q); !got.Listening || got.Inode != old.Inode() || got.Length != 2 || !got.WaitingSince.Equal(before.WaitingSince) || !got.ListeningSince.Equal(before.At) {
		t.Errorf("unlinked, process alive: %+v, want still a listener", got)
	}
	fresh := evidencetest.ListenAt(t, path, 5)
	evidencetest.Connect(t, path, 1)
	if got := sampleQueue(t, q); got.Inode != fresh.Inode() || got.Length != 1 || got.Limit != 5 || !got.WaitingSince.Equal(got.At) || !got.ListeningSince.Equal(got.At) {
		t.Errorf("bound again: %+v, want the second, at once, waiting since now", got)
	}
	check.Equal(t, len(q.hop.dialer.moved), 1, "the probe of the first is not given up")
	fresh.Close()
	if got := sampleQueue(t, q); got.Listening {
		t.Errorf("the second closed, its file there: %+v, want no listener: a connect is refused", got)
	}
	must.Do(t, os.Remove(path))
	if got := sampleQueue(t, q); !got.Listening || got.Inode != old.Inode() {
		t.Errorf("and its file gone: %+v, want the first, unlinked", got)
	}
}

// TestQueueSpelledOtherwise: the runtime has bound the path by another name.
func TestQueueSpelledOtherwise(t *testing.T) {
	needUnixDiag(t)
	path := evidencetest.SocketPath(t)
	dir := filepath.Dir(path)
	link := filepath.Join(dir, "var")
	must.Do(t, os.Symlink(dir, link))
	l := evidencetest.ListenAt(t, path, 1)
	toSocket := filepath.Join(dir, "link.sock")
	must.Do(t, os.Symlink("r.sock", toSocket))
	hard := filepath.Join(dir, "hard.sock")
	must.Do(t, os.Link(path, hard))
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
		q := queueAt(at(tt.path))
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
	if got := sampleQueue(t, queueAt(at(path))); got.Listening {
		t.Errorf("%+v, want no listener", got)
	}
	l := evidencetest.ListenAt(t, path, 3)
	q := queueAt(at(path))
	if got := sampleQueue(t, q); got.Inode != l.Inode() || got.Length != 0 || got.Limit != 3 {
		t.Errorf("%+v, want inode %d of limit 3", got, l.Inode())
	}
	// Another endpoint is configured, or found.
	q.hop.path = at(path + "2")
	if got := sampleQueue(t, q); got.Length != 1 || got.Limit != 9 {
		t.Errorf("another path: %+v", got)
	}
}
