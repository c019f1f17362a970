package evidence

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/evidence/evidencetest"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

// listening is a /proc of processes and the listener at a path in it.
type listening struct {
	t      *testing.T
	root   string
	queue  *health.Queue
	peer   int
	at     time.Time
	held   int
	moved  int
	source *listenerSource
}

func newListening(t *testing.T) *listening {
	l := &listening{t: t, root: t.TempDir(), held: 10}
	l.source = newListenerSource(ListenerOptions{
		ProcFS: l.root, Table: node.NewTable(l.root), Queue: func() *health.Queue { return l.queue },
		Peer: func() (int, time.Time) { return l.peer, l.at },
		Held: func() int { return l.held }, Moved: func() { l.moved++ },
	})
	process(t, l.root, 1, 0, "systemd", 'S')
	process(t, l.root, 10, 1, "containerd", 'S', "/usr/bin/containerd", "--config", "/etc/secret.toml")
	process(t, l.root, 20, 1, "containerd", 'S', "/opt/containerd")
	return l
}

// socket puts another listening socket at the path.
func (l *listening) socket(inode uint64) {
	l.queue = &health.Queue{At: time.Now(), Listening: true, Inode: inode}
}

// connects makes a fresh connection.
func (l *listening) connects(peer int) { l.peer, l.at = peer, time.Now() }

// holds has a process hold a socket.
func (l *listening) holds(pid int, inode uint64) {
	l.t.Helper()
	dir := filepath.Join(l.root, strconv.Itoa(pid), "fd")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink("socket:["+strconv.FormatUint(inode, 10)+"]", filepath.Join(dir, strconv.FormatUint(inode, 10)))); err != nil {
		l.t.Fatal(err)
	}
}

func (l *listening) want(pid int) *health.Listener {
	l.t.Helper()
	v, err := l.source.gather(l.t.Context())
	if pid < 0 {
		if !errors.Is(err, ErrNoData) && !proc.Gone(err) {
			l.t.Errorf("%+v, %v; want nothing", v, err)
		}
		return nil
	}
	if err != nil || v.PID != pid {
		l.t.Fatalf("%+v, %v; want pid %d", v, err, pid)
	}
	return v
}

// TestListenerMoves: the path leads to another socket and back.
func TestListenerMoves(t *testing.T) {
	l := newListening(t)
	l.want(-1) // nothing has been looked at
	l.connects(10)
	l.socket(100)
	first := l.want(10)
	if first.Command != "/usr/bin/containerd" || first.Comm != "containerd" || first.Inode != 100 || first.Related {
		t.Errorf("%+v", first)
	}
	if again := l.want(10); !again.Since.Equal(first.Since) {
		t.Errorf("since %s, want %s", again.Since, first.Since)
	}
	l.socket(200)
	if l.want(-1); l.moved != 1 { // the last connection was made to the socket before
		t.Errorf("%d moves", l.moved)
	}
	l.connects(20)
	l.want(-1) // another one may be there since
	l.socket(200)
	if second := l.want(20); second.Related || !second.Since.After(first.Since) || second.Command != "/opt/containerd" {
		t.Errorf("%+v", second)
	}
	// Back: no connection has been made to it since, and it is known.
	l.socket(100)
	l.want(10)
	if l.moved != 2 {
		t.Errorf("%d moves", l.moved)
	}
	l.queue = &health.Queue{At: time.Now()}
	l.want(-1)
}

// TestListenerMetBeforeItWasSeen: a connection that was made between two samples of
// the queue reached the new socket, if another process answered for it.
func TestListenerMetBeforeItWasSeen(t *testing.T) {
	for peer, want := range map[int]int{20: 20, 10: -1} {
		l := newListening(t)
		l.connects(10)
		l.socket(100)
		l.want(10)
		l.connects(peer)
		l.socket(200)
		l.want(want)
	}
}

// TestListenerMetBeforeTheQueueWasRead: a connection that reached the new socket
// while the last sample of the queue still shows the old one says nothing of that
// one's owner.
func TestListenerMetBeforeTheQueueWasRead(t *testing.T) {
	l := newListening(t)
	l.connects(10)
	l.socket(100)
	l.want(10)
	l.connects(20)
	if v := l.want(10); v.Inode != 100 {
		t.Errorf("%+v", v)
	}
	l.socket(200)
	if v := l.want(20); v.Inode != 200 {
		t.Errorf("%+v", v)
	}
	l.want(20)
	l.socket(100)
	l.want(10)
}

// TestListenerEnded: when the process has ended and the queue has not been looked at
// since, the sample before it stands for one more look.
func TestListenerEnded(t *testing.T) {
	l := newListening(t)
	l.connects(10)
	l.socket(100)
	l.want(10)
	l.connects(20)
	l.socket(200)
	l.want(20)
	if err := os.RemoveAll(filepath.Join(l.root, "20")); err != nil {
		t.Fatal(err)
	}
	if v, err := l.source.gather(t.Context()); !errors.Is(err, errListenerEnded) {
		t.Errorf("%+v, %v", v, err)
	}
	l.want(-1)
	l.socket(100)
	l.want(10)
}

// TestListenerByInode: where no connection tells, the owner of the socket does.
func TestListenerByInode(t *testing.T) {
	l := newListening(t)
	l.connects(10)
	l.socket(100)
	l.want(10)
	l.holds(20, 200)
	l.socket(200)
	l.want(20) // before anybody has connected
	l.connects(1)
	l.want(20) // systemd made it
	l.socket(300)
	l.want(-1)
	l.connects(0)
	l.socket(300)
	if v := l.want(0); v.Comm != "" { // in another pid namespace
		t.Errorf("%+v", v)
	}
	l.holds(10, 300)
	l.want(0) // it has been searched for a moment ago
	l.source.missed.searched = time.Now().Add(-searchInterval)
	l.want(10)
}

// TestListenerInOtherMounts: the path is there for the process that listens, and not
// for plegd.
func TestListenerInOtherMounts(t *testing.T) {
	l := newListening(t)
	path := filepath.Join(t.TempDir(), "containerd.sock")
	l.source.opts.Path = func() string { return path }
	l.connects(10)
	l.socket(100)
	if v := l.want(10); v.OtherMounts {
		t.Error("it is there for nobody")
	}
	there := filepath.Join(l.root, "10", "root", path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(there), 0o755), os.WriteFile(there, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if v := l.want(10); !v.OtherMounts {
		t.Error("it is there for that process")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if v := l.want(10); v.OtherMounts {
		t.Error("it is there for both")
	}
}

// TestListenerWithoutQueue: where sock_diag does not answer, the newest
// connection tells.
func TestListenerWithoutQueue(t *testing.T) {
	l := newListening(t)
	l.connects(10)
	l.want(10)
	l.connects(20)
	l.want(20)
	l.connects(99) // gone
	l.want(-1)
}

// TestListenerFork: a process that the runtime has started, or that started it by
// the same name, is the same runtime.
func TestListenerFork(t *testing.T) {
	l := newListening(t)
	process(t, l.root, 11, 10, "worker", 'S')
	process(t, l.root, 12, 11, "worker", 'S')
	process(t, l.root, 13, 20, "containerd", 'S')
	process(t, l.root, 30, 1, "bash", 'S')
	process(t, l.root, 31, 30, "containerd", 'S')
	for _, tt := range []struct {
		held, listens int
		want          bool
	}{
		{10, 10, false}, {10, 20, false}, {10, 11, true}, {10, 12, true}, {13, 20, true}, {31, 30, false}, {0, 20, false},
	} {
		l.held = tt.held
		l.connects(tt.listens)
		if v := l.want(tt.listens); v.Related != tt.want {
			t.Errorf("pid %d holds, %d listens: related %v", tt.held, tt.listens, v.Related)
		}
	}
}

// TestProcessKeepsToItsConnection: where SO_PEERCRED does not name it, the
// process behind the connection is settled on once, wherever the path leads
// afterwards.
func TestProcessKeepsToItsConnection(t *testing.T) {
	l := newListening(t)
	l.holds(10, 100)
	l.holds(20, 200)
	inode, peer := uint64(100), 1
	for _, pid := range []string{"10", "20"} {
		evidencetest.WriteTree(t, l.root, map[string]string{pid + "/task/" + pid + "/stat": evidencetest.StatLine(number(t, pid), "containerd", 'S', 1, 100)})
	}
	p := NewProcess(ProcessOptions{ProcFS: l.root, Table: node.NewTable(l.root), PeerPID: func() int { return peer }, ListenerInode: func() uint64 { return inode }})
	if v := gatherProcess(t, p); v.PID != 10 {
		t.Fatalf("%+v", v)
	}
	inode = 200
	if v := gatherProcess(t, p); v.PID != 10 || v.RestartsTotal != 0 {
		t.Errorf("%+v, want the process behind the connection", v)
	}
	peer = 20
	if v := gatherProcess(t, p); v.PID != 20 {
		t.Errorf("%+v, want the new connection's", v)
	}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestUnitOf(t *testing.T) {
	for cgroup, want := range map[string]string{
		"/system.slice/containerd.service":                           "containerd.service",
		"/system.slice/k3s.service/runtime":                          "k3s.service",
		"/kubepods.slice/kubepods-pod1.slice/cri-containerd-a.scope": "",
		"/": "",
		"":  "",
	} {
		if got := unitOf(cgroup); got != want {
			t.Errorf("%q: %q", cgroup, got)
		}
	}
}
