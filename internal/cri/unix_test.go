package cri

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// listen serves a runtime on a unix socket until the test ends.
func listen(t *testing.T, opts fakeruntime.Options) (*fakeruntime.Runtime, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	rt := fakeruntime.New(opts)
	must.Do(t, rt.Listen(path))
	t.Cleanup(rt.Stop)
	return rt, path
}

// unixClient returns a client of the socket at a path.
func unixClient(t *testing.T, path string) *Client {
	t.Helper()
	c := New(Options{Path: path, RPCTimeout: 20 * time.Second})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestSetPath: calls fail before there is a path and work after it; after a second one
// they go to the new socket, and the history and the last lists begin again.
func TestSetPath(t *testing.T) {
	c := New(Options{RPCTimeout: 20 * time.Second})
	t.Cleanup(func() { _ = c.Close() })
	_, err := c.Version(t.Context())
	if e := failure(t, err); e.Code != CodeUnavailable || c.LastDial() != nil {
		t.Fatalf("without a path: %+v, last dial %v", *e, c.LastDial())
	}
	var hung chan error
	for _, name := range []string{"containerd", "cri-o"} {
		rt, path := listen(t, fakeruntime.Options{})
		rt.SetVersion(name, "1.0")
		rt.FillPods(1, 1)
		c.SetPath(path)
		if hung != nil {
			check.Equal(t, failure(t, <-hung).Code, CodeCanceled, "the call under way")
			if sandboxes, _ := c.LastLists(); len(sandboxes) > 0 {
				t.Errorf("%d sandboxes of the first socket are kept", len(sandboxes))
			}
			if h := c.History(OpVersion); h != (facts.Call{}) || c.LastDial() != nil {
				t.Errorf("kept of the first socket: %+v, last dial %v", h, c.LastDial())
			}
		}
		v, err := c.Version(t.Context())
		awaitUp(t, c)
		if pid, up := c.Peer(); err != nil || v.Name != name || !up || pid != os.Getpid() {
			t.Fatalf("%+v, %v; want %s", v, err, name)
		}
		if _, err := c.ListPodSandbox(t.Context()); err != nil {
			t.Fatal(err)
		}
		rt.Set("Status", fakeruntime.Hang())
		hung = make(chan error, 1)
		go func() { _, err := c.Status(t.Context()); hung <- err }()
		must.Do(t, rt.AwaitCalls(within(t, 10*time.Second), "Status", 1))
	}
	_ = c.Close()
	check.Equal(t, failure(t, <-hung).Code, CodeCanceled, "the call under way at the end")
	before := c.session.Load()
	if c.SetPath("/other"); c.session.Load() != before {
		t.Error("SetPath after Close makes a connection")
	}
}

// TestNotARuntime: any other object at the path is Unavailable, promptly.
func TestNotARuntime(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	for _, tt := range []struct {
		name, path string
		errno      error
	}{
		{"nothing", filepath.Join(dir, "nothing"), syscall.ENOENT},
		{"a file", file, syscall.ECONNREFUSED},
		{"a directory", dir, syscall.ECONNREFUSED},
		{"a path below a file", filepath.Join(file, "s"), syscall.ENOTDIR},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := unixClient(t, tt.path)
			_, err := c.Version(t.Context())
			check.Equal(t, failure(t, err).Code, CodeUnavailable, "code")
			if dial := c.LastDial(); !errors.Is(dial.Err, tt.errno) {
				t.Errorf("last dial %+v, want %v", *dial, tt.errno)
			}
		})
	}
	for name, fault := range map[string]fakeruntime.Term{"garbage": fakeruntime.Garbage(), "closed": fakeruntime.Close()} {
		t.Run(name, func(t *testing.T) {
			rt, path := listen(t, fakeruntime.Options{})
			rt.Set(fakeruntime.Socket, fault)
			c := unixClient(t, path)
			_, err := c.Version(t.Context())
			if e := failure(t, err); e.Code != CodeUnavailable || e.Message == "" || strings.Contains(e.Message, "\n") {
				t.Errorf("%+v, want Unavailable and one line", *e)
			}
			if dial := c.LastDial(); dial.Err != nil {
				t.Errorf("last dial %+v: the connection was made", *dial)
			}
		})
	}
}

// TestForeignServer: a server that answers the first bytes and closes is known by
// its answer, also where the next bytes are written to it too late.
func TestForeignServer(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	must.Do(t, err)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n400 Bad Request")
		_ = c.Close()
	}()
	defer func() { _ = l.Close(); <-answered }()
	c := New(Options{Path: l.Addr().String(), RPCTimeout: 20 * time.Second, Dial: func(ctx context.Context) (net.Conn, error) {
		conn, err := DialPath(l.Addr().String())(ctx)
		return &lateConn{Conn: conn, after: answered}, err
	}})
	defer func() { _ = c.Close() }()
	_, err = c.Version(t.Context())
	if e := failure(t, err); !Foreign(e) {
		t.Errorf("%+v, want what the server answered", *e)
	}
}

// lateConn writes all but the first bytes only after something.
type lateConn struct {
	net.Conn
	after <-chan struct{}
	began bool
}

func (c *lateConn) Write(p []byte) (int, error) {
	if c.began {
		<-c.after
	}
	c.began = true
	return c.Conn.Write(p)
}
