package chain

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestRequestsOfDaemon: a plugin that does not answer has more connections of the daemon than that keeps idle, of
// which some are new; a log server with many from before, and a plugin with idle ones, are not named.
func TestRequestsOfDaemon(t *testing.T) {
	evidencetest.NeedUnixDiag(t, proc.EachSocket(t.Context(), 1<<proc.Listening, func(proc.Socket) {}))
	for name, tt := range map[string]struct {
		before, since int
		want          bool
	}{
		"requests in flight":         {since: maxIdle + 1, want: true},
		"one more beside those idle": {before: maxIdle, since: 1, want: true},
		"idle":                       {since: maxIdle},
		"all from before":            {before: 2 * maxIdle},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("unix", evidencetest.SocketPath(t))
			must.Do(t, err)
			t.Cleanup(func() { _ = listener.Close() })
			e := New(proc.NewTable("/proc"), "/sys", nil)
			e.symptom.DaemonPID = os.Getpid()
			evidencetest.Connect(t, listener.Addr().String(), tt.before)
			e.noteOpened()
			evidencetest.Connect(t, listener.Addr().String(), tt.since)
			plugin := keeperOf(t, listener.(*net.UnixListener), tt.before+tt.since, "sleep", "1000")
			f := &waiting{Explorer: e, pid: os.Getpid()}
			f.first.sockets = f.connections(t.Context())
			f.last.sockets = f.connections(t.Context())
			f.requestsOf(t.Context())
			found := false
			for _, w := range f.found {
				found = found || w.next == plugin && w.state == facts.LinkUnanswered
			}
			if found != tt.want {
				t.Errorf("%+v", f.found)
			}
		})
	}
}

// TestServersOfStarts: a server that stands still is named where starts of pods do not end; another one as one of which it
// cannot be seen.
func TestServersOfStarts(t *testing.T) {
	evidencetest.NeedUnixDiag(t, proc.EachSocket(t.Context(), 1<<proc.Listening, func(proc.Socket) {}))
	locked := filepath.Join(t.TempDir(), "lock")
	lock, err := os.Create(locked)
	must.Do(t, err)
	defer func() { _ = lock.Close() }()
	must.Do(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	for name, tt := range map[string]struct {
		isStopped bool
		program   []string
		isNamed   bool
	}{
		"a server that is stopped":       {isStopped: true, program: []string{"sleep", "1000"}, isNamed: true},
		"a server that sleeps":           {program: []string{"sleep", "1000"}},
		"a server that waits for a lock": {program: []string{"flock", locked, "true"}, isNamed: true},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("unix", evidencetest.SocketPath(t))
			must.Do(t, err)
			t.Cleanup(func() { _ = listener.Close() })
			evidencetest.Connect(t, listener.Addr().String(), 1)
			server := keeperOf(t, listener.(*net.UnixListener), 1, tt.program...)
			if tt.isStopped {
				must.Do(t, syscall.Kill(server, syscall.SIGSTOP))
			}
			e := New(proc.NewTable("/proc"), "/sys", nil)
			e.symptom.Process = os.Getpid()
			e.symptom.Starts = true
			f := &waiting{Explorer: e, pid: os.Getpid()}
			f.first.sockets = f.connections(t.Context())
			f.last.sockets = f.connections(t.Context())
			f.answers(t.Context())
			if len(f.found) != 1 {
				t.Fatalf("%+v", f.found)
			}
			isNamed := f.found[0].next == server && f.found[0].unknown == ""
			isMentioned := f.found[0].next == 0 && strings.Contains(f.found[0].unknown, fmt.Sprintf("pid %d (sleep) at socket %s", server, listener.Addr()))
			if isNamed != tt.isNamed || isMentioned == tt.isNamed {
				t.Errorf("%+v", f.found[0])
			}
		})
	}
}

// keeperOf returns a process of a program that has the server's ends of n connections.
func keeperOf(t *testing.T, listener *net.UnixListener, n int, program ...string) (pid int) {
	t.Helper()
	cmd := exec.Command(program[0], program[1:]...)
	for range n {
		c, err := listener.AcceptUnix()
		must.Do(t, err)
		f, err := c.File()
		must.Do(t, err)
		must.Do(t, c.Close())
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for _, f := range cmd.ExtraFiles {
		must.Do(t, f.Close())
	}
	return cmd.Process.Pid
}
