package evidence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// listening is a /proc of processes and the listener at a path in it.
type listening struct {
	t      *testing.T
	root   string
	queue  *facts.Queue
	source *listenerSource
}

func newListening(t *testing.T) *listening {
	l := &listening{t: t, root: t.TempDir()}
	l.source = &listenerSource{hop: &hop{
		procfs: l.root, table: proc.NewTable(l.root), queue: func() *facts.Queue { return l.queue },
		path: at(""), dialer: NewDialer(DialOptions{}),
	}}
	process(t, l.root, 1, 0, "systemd", 'S')
	process(t, l.root, 10, 1, "containerd", 'S', "/usr/bin/containerd", "--config", "/etc/secret.toml")
	process(t, l.root, 20, 1, "containerd", 'S', "/opt/containerd")
	return l
}

// socket puts another listening socket at the path, or none.
func (l *listening) socket(inode uint64) {
	now := time.Now()
	l.queue = &facts.Queue{At: now, ListeningSince: now, Listening: inode != 0, Inode: inode}
}

// connects makes a fresh connection.
func (l *listening) connects(peer int) {
	l.source.hop.dialer.peer.Store(&cri.DialResult{PeerPID: peer, At: time.Now()})
}

// holds has a process hold a socket.
func (l *listening) holds(pid int, inode uint64) {
	l.t.Helper()
	dir := filepath.Join(l.root, strconv.Itoa(pid), "fd")
	must.Do(l.t, errors.Join(os.MkdirAll(dir, 0o755), os.Symlink("socket:["+strconv.FormatUint(inode, 10)+"]", filepath.Join(dir, strconv.FormatUint(inode, 10)))))
}

// do takes steps: socket and peer change, hold has a process hold a socket, end ends one, and
// want is the pid of the listener.
func (l *listening) do(name, steps string) {
	l.t.Helper()
	for _, step := range strings.Split(steps, "; ") {
		var what string
		var n, inode int
		if _, err := fmt.Sscan(step, &what, &n); err != nil {
			l.t.Fatalf("%s: %q: %v", name, step, err)
		}
		switch what {
		case "socket":
			l.socket(uint64(n))
		case "peer":
			l.connects(n)
		case "hold":
			_, _ = fmt.Sscan(step, &what, &n, &inode)
			l.holds(n, uint64(inode))
		case "end":
			must.Do(l.t, os.RemoveAll(filepath.Join(l.root, strconv.Itoa(n))))
		case "want":
			l.want(n)
		default:
			l.t.Fatalf("%s: %q", name, step)
		}
		if l.t.Failed() {
			l.t.Fatalf("%s: at %q", name, step)
		}
	}
}

// want samples and wants a listener, or none at -1.
func (l *listening) want(pid int) *facts.Listener {
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

// TestListener: who listens, out of the socket at the path and the newest connection.
func TestListener(t *testing.T) {
	const known = "peer 10; socket 100; want 10; "
	for name, steps := range map[string]string{
		// The last connection was made to the socket before; the next one shows the process.
		"moves": "want -1; " + known + "want 10; socket 200; want -1; peer 20; want 20; socket 100; want -1; peer 10; want 10; socket 0; want -1",
		"ended": known + "socket 200; peer 20; want 20; end 20; want -1; socket 100; peer 10; want 10",
		// Where no connection tells, the owner of the socket does; 1 is systemd, which made
		// it, 0 is in another pid namespace.
		"by inode":             known + "hold 20 200; socket 200; want 20; peer 1; want 20; socket 300; want -1; peer 0; want 0",
		"no sock_diag answers": "peer 10; want 10; peer 20; want 20; peer 99; want -1",
	} {
		l := newListening(t)
		l.do(name, steps)
	}
	l := newListening(t)
	l.do("its facts", "peer 10; socket 100")
	first := l.want(10)
	if first.Command != "/usr/bin/containerd" || first.Comm != "containerd" || first.Inode != 100 {
		t.Errorf("%+v", first)
	}
	if again := l.want(10); !again.Since.Equal(first.Since) {
		t.Errorf("since %s, want %s", again.Since, first.Since)
	}
	l.do("another one", "socket 200; peer 20")
	if second := l.want(20); !second.Since.After(first.Since) || second.Command != "/opt/containerd" || second.Inode != 200 {
		t.Errorf("%+v", second)
	}
}

// TestListenerInOtherMounts: the path is there for the process that listens, and not
// for plegd.
func TestListenerInOtherMounts(t *testing.T) {
	l := newListening(t)
	path := filepath.Join(t.TempDir(), "containerd.sock")
	l.source.hop.path = at(path)
	l.connects(10)
	l.socket(100)
	if v := l.want(10); v.OtherMounts {
		t.Error("it is there for nobody")
	}
	there := filepath.Join(l.root, "10", "root", path)
	must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(there), 0o755), os.WriteFile(there, nil, 0o600)))
	if v := l.want(10); !v.OtherMounts {
		t.Error("it is there for that process")
	}
	must.Do(t, os.WriteFile(path, nil, 0o600))
	if v := l.want(10); v.OtherMounts {
		t.Error("it is there for both")
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
	p := processOf(l.root, func() int { return peer })
	p.hop.queue = func() *facts.Queue { return &facts.Queue{Inode: inode} }
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

// TestNameOf: the unit of a process is a service; of its arguments only the first is shown.
func TestNameOf(t *testing.T) {
	l := newListening(t)
	for cgroup, want := range map[string]string{
		"/system.slice/containerd.service":                           "containerd.service",
		"/system.slice/k3s.service/runtime":                          "k3s.service",
		"/kubepods.slice/kubepods-pod1.slice/cri-containerd-a.scope": "",
		"/": "",
	} {
		evidencetest.WriteTree(t, l.root, map[string]string{"10/cgroup": "0::" + cgroup + "\n"})
		if command, unit := l.source.hop.nameOf(proc.ID{PID: 10, Start: 1000}); command != "/usr/bin/containerd" || unit != want {
			t.Errorf("%q: %q, %q", cgroup, command, unit)
		}
	}
}
