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

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/evidencetest"
)

// TestDialUnix sees the same over a real socket.
func TestDialUnix(t *testing.T) {
	for _, tt := range []struct {
		name    string
		make    func(t *testing.T, path string)
		timeout time.Duration
		stage   health.Stage
		cause   health.Cause
		probes  int // where the next one waits, 1
	}{
		{"well", runtimeWith(), 10 * time.Second, "", health.CauseNone, 20},
		{"a full queue", listen(0, 1), 10 * time.Second, health.StageConnect, health.CauseQueueFull, 1},
		{"nobody accepts", listen(5, 0), 50 * time.Millisecond, health.StageSettings, health.CauseTimeout, 1},
		{"hung up on", runtimeWith(fakeruntime.Close()), 10 * time.Second, health.StageSettings, health.CauseClosed, 20},
		{"garbage", runtimeWith(fakeruntime.Garbage()), 10 * time.Second, health.StageSettings, health.CauseProtocol, 20},
	} {
		path := evidencetest.SocketPath(t)
		tt.make(t, path)
		p := probe(t, DialOptions{Path: func() string { return path }, Period: 10 * time.Millisecond, Timeout: tt.timeout})
		seen := map[health.Cause]int{}
		for range tt.probes {
			d := p.next(t)
			seen[d.Cause]++
			if tt.cause == health.CauseProtocol && d.Cause == health.CauseClosed {
				continue // it hung up before it was understood: true as well
			}
			if d.OK != (tt.cause == health.CauseNone) || d.Stage != tt.stage || d.Cause != tt.cause {
				t.Fatalf("%s: %+v, want %q and %q", tt.name, d, tt.stage, tt.cause)
			}
		}
		if seen[tt.cause] < (tt.probes+1)/2 {
			t.Errorf("%s: causes %v, want mostly %q", tt.name, seen, tt.cause)
		}
		if peer := p.peer.Load(); (tt.stage != health.StageConnect) != (peer != nil && peer.PeerPID == os.Getpid()) {
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
		if err := rt.Listen(path); err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := l.Accept()
			_ = l.Close() // which unlinks the path
			if err == nil {
				_, _ = c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // SETTINGS
				_ = c.Close()
			}
		}()
		p := probe(t, DialOptions{Path: func() string { return path }, Timeout: 10 * time.Second}).next(t)
		missing := p.Stage == health.StageConnect && p.Cause == health.CauseMissing
		if !missing && p.Cause != health.CauseClosed {
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
	if p := d.next(t); p.Cause != health.CauseTimeout {
		t.Fatalf("%+v", p)
	}
	runtimeWith()(t, path+"r")
	if err := os.Rename(path+"r", path); err != nil {
		t.Fatal(err)
	}
	d.moved.Send()
	for p := d.next(t); !p.OK; p = d.next(t) {
		if p.Cause != health.CauseTimeout || time.Since(p.At) > 20*time.Second { // it may take 50 ms to answer
			t.Fatalf("%+v", p)
		}
	}
}

// TestConnectCause makes each failure on a real socket and checks its cause, and words in
// one line that name the path.
func TestConnectCause(t *testing.T) {
	file := func(t *testing.T, path string) {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		make   func(t *testing.T, path string)
		below  string // of the path
		cause  health.Cause
		detail string
	}{
		"a listener":     {listen(5, 0), "", health.CauseNone, ""},
		"nothing":        {func(*testing.T, string) {}, "", health.CauseMissing, "no such file"},
		"below a file":   {file, "/s", health.CauseMissing, ""},
		"a stale socket": {func(t *testing.T, path string) { evidencetest.ListenAt(t, path, 5).Close() }, "", health.CauseRefused, "nobody listens"},
		"a regular file": {file, "", health.CauseNotSocket, "not a socket"},
		"a datagram socket": {func(t *testing.T, path string) {
			c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
		}, "", health.CauseNotSocket, "another type"},
		"a full queue": {listen(0, 1), "", health.CauseQueueFull, "EAGAIN"},
		"links in a circle": {func(t *testing.T, path string) {
			if err := os.Symlink(path, path); err != nil {
				t.Fatal(err)
			}
		}, "", health.CauseError, unix.ELOOP.Error()},
	} {
		path := evidencetest.SocketPath(t)
		tt.make(t, path)
		_, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path+tt.below)
		cause, detail := ConnectCause(err, path+tt.below)
		named := cause == health.CauseNone || strings.Contains(detail, path)
		if cause != tt.cause || !strings.Contains(detail, tt.detail) || strings.Contains(detail, "\n") || !named {
			t.Errorf("%s: %v: cause %q (%s), want %q (%s)", name, err, cause, detail, tt.cause, tt.detail)
		}
	}
	for err, want := range map[error]health.Cause{
		context.DeadlineExceeded: health.CauseTimeout, os.ErrDeadlineExceeded: health.CauseTimeout, errors.New("strange"): health.CauseError,
		syscall.EACCES: health.CausePermissionDenied, syscall.EPERM: health.CausePermissionDenied,
	} {
		if cause, detail := ConnectCause(err, "/s"); cause != want || detail == "" {
			t.Errorf("%v: cause %q, %q", err, cause, detail)
		}
	}
}
