package evidence

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestDialUnix sees the same over a real socket.
func TestDialUnix(t *testing.T) {
	for _, tt := range []struct {
		name    string
		make    func(t *testing.T, path string)
		timeout time.Duration
		stage   facts.Stage
		cause   facts.Cause
		probes  int // where the next one waits, 1
	}{
		{"well", runtimeWith(), 10 * time.Second, "", facts.CauseNone, 20},
		{"a full queue", listen(0, 1), 10 * time.Second, facts.StageConnect, facts.CauseQueueFull, 1},
		{"nobody accepts", listen(5, 0), 50 * time.Millisecond, facts.StageSettings, facts.CauseTimeout, 1},
		{"hung up on", runtimeWith(fakeruntime.Close()), 10 * time.Second, facts.StageSettings, facts.CauseClosed, 20},
		{"garbage", runtimeWith(fakeruntime.Garbage()), 10 * time.Second, facts.StageSettings, facts.CauseProtocol, 20},
	} {
		path := evidencetest.SocketPath(t)
		tt.make(t, path)
		p := probe(t, DialOptions{Path: func() string { return path }, Period: 10 * time.Millisecond, Timeout: tt.timeout})
		seen := map[facts.Cause]int{}
		for range tt.probes {
			d := p.next(t)
			seen[d.Cause]++
			if tt.cause == facts.CauseProtocol && d.Cause == facts.CauseClosed {
				continue // it hung up before it was understood: true as well
			}
			if d.OK != (tt.cause == facts.CauseNone) || d.Stage != tt.stage || d.Cause != tt.cause {
				t.Fatalf("%s: %+v, want %q and %q", tt.name, d, tt.stage, tt.cause)
			}
		}
		if seen[tt.cause] < (tt.probes+1)/2 {
			t.Errorf("%s: causes %v, want mostly %q", tt.name, seen, tt.cause)
		}
		if peer := p.peer.Load(); (tt.stage != facts.StageConnect) != (peer != nil && peer.PeerPID == os.Getpid()) {
			t.Errorf("%s: the peer is %+v", tt.name, peer)
		}
	}
}

// runtimeWith serves a runtime with a fault of its socket.
func runtimeWith(fault ...fakeruntime.Term) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		rt := fakeruntime.New(fakeruntime.Options{})
		rt.Set(fakeruntime.Socket, fault...)
		must.Do(t, rt.Listen(path))
		t.Cleanup(rt.Stop)
	}
}

// listen listens with room for some connections and one more, and makes some.
func listen(backlog, connections int) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		evidencetest.ListenAt(t, path, backlog)
		evidencetest.Connect(t, path, connections)
	}
}

// TestDialUnixEndsInBetween: a runtime that ends between its SETTINGS and the
// Version call has not shown that it speaks no gRPC.
func TestDialUnixEndsInBetween(t *testing.T) {
	for range 10 {
		path := evidencetest.SocketPath(t)
		l, err := net.Listen("unix", path)
		must.Do(t, err)
		go func() {
			c, err := l.Accept()
			_ = l.Close() // which unlinks the path
			if err == nil {
				_, _ = c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // SETTINGS
				_ = c.Close()
			}
		}()
		p := probe(t, DialOptions{Path: func() string { return path }, Timeout: 10 * time.Second}).next(t)
		missing := p.Stage == facts.StageConnect && p.Cause == facts.CauseMissing
		if !missing && p.Cause != facts.CauseClosed {
			t.Errorf("%+v, want that the path is gone or that the connection was closed", p)
		}
	}
}

// TestDialMoved: a probe that waits for who never answers is given up when the
// path leads to somebody else.
func TestDialMoved(t *testing.T) {
	path := evidencetest.SocketPath(t)
	listen(5, 0)(t, path)
	d := probe(t, DialOptions{Path: func() string { return path }, Period: time.Hour, Timeout: 50 * time.Millisecond})
	if p := d.next(t); p.Cause != facts.CauseTimeout {
		t.Fatalf("%+v", p)
	}
	runtimeWith()(t, path+"r")
	must.Do(t, os.Rename(path+"r", path))
	d.moved.Send()
	for p := d.next(t); !p.OK; p = d.next(t) {
		if p.Cause != facts.CauseTimeout || time.Since(p.At) > 20*time.Second { // it may take 50 ms to answer
			t.Fatalf("%+v", p)
		}
	}
}

// TestConnectCause makes each failure on a real socket and checks its cause, and words in
// one line that name the path.
func TestConnectCause(t *testing.T) {
	file := func(t *testing.T, path string) {
		must.Do(t, os.WriteFile(path, nil, 0o600))
	}
	for name, tt := range map[string]struct {
		make   func(t *testing.T, path string)
		below  string // of the path
		cause  facts.Cause
		detail string
	}{
		"a listener":     {listen(5, 0), "", facts.CauseNone, ""},
		"nothing":        {func(*testing.T, string) {}, "", facts.CauseMissing, "no such file"},
		"below a file":   {file, "/s", facts.CauseMissing, ""},
		"a stale socket": {func(t *testing.T, path string) { evidencetest.ListenAt(t, path, 5).Close() }, "", facts.CauseRefused, "nobody listens"},
		"a regular file": {file, "", facts.CauseNotSocket, "not a socket"},
		"a datagram socket": {func(t *testing.T, path string) {
			c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			must.Do(t, err)
			t.Cleanup(func() { _ = c.Close() })
		}, "", facts.CauseNotSocket, "another type"},
		"a full queue": {listen(0, 1), "", facts.CauseQueueFull, "EAGAIN"},
		"links in a circle": {func(t *testing.T, path string) {
			must.Do(t, os.Symlink(path, path))
		}, "", facts.CauseError, unix.ELOOP.Error()},
	} {
		path := evidencetest.SocketPath(t)
		tt.make(t, path)
		_, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path+tt.below)
		cause, detail := ConnectCause(err, path+tt.below)
		named := cause == facts.CauseNone || strings.Contains(detail, path)
		if cause != tt.cause || !strings.Contains(detail, tt.detail) || strings.Contains(detail, "\n") || !named {
			t.Errorf("%s: %v: cause %q (%s), want %q (%s)", name, err, cause, detail, tt.cause, tt.detail)
		}
	}
	for err, want := range map[error]facts.Cause{
		context.DeadlineExceeded: facts.CauseTimeout, os.ErrDeadlineExceeded: facts.CauseTimeout, errors.New("strange"): facts.CauseError,
		syscall.EACCES: facts.CausePermissionDenied, syscall.EPERM: facts.CausePermissionDenied,
	} {
		if cause, detail := ConnectCause(err, "/s"); cause != want || detail == "" {
			t.Errorf("%v: cause %q, %q", err, cause, detail)
		}
	}
}
