package cri

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/must"
)

// queued listens at a path and accepts nothing. The listener lives on when the path is
// removed, as a copy of its descriptor does.
func queued(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	must.Do(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestStaleAccepted: a connection that was accepted is kept, as the kubelet keeps it,
// also after its runtime has died, while a child holds it, and another one listens.
func TestStaleAccepted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := queued(t, path)
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = conn.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
		}
		accepted <- conn
	}()
	c := unixClient(t, path)
	go func() { _, _ = c.Version(t.Context()) }()
	awaitUp(t, c)
	conn := <-accepted
	t.Cleanup(func() { _ = conn.Close() })
	_ = l.Close()
	must.Do(t, os.Remove(path))
	queued(t, path)
	_, err := c.Version(within(t, 3*staleEvery))
	must.Equal(t, failure(t, err).Code, CodeDeadlineExceeded, "the connection is kept: %v", err)
}

// TestStaleInQueue: a connection in the accept queue of a listener that is no
// longer at the path is given up.
func TestStaleInQueue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	queued(t, path)
	c := unixClient(t, path)
	_, err := c.Version(within(t, 3*staleEvery))
	if failure(t, err).Code != CodeDeadlineExceeded {
		t.Fatal(err)
	}
	answersAgain(t, c, path)
}

// TestStaleAtOnce: the first socket comes to the path in the moment of the connection.
func TestStaleAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listen := sync.OnceFunc(func() { queued(t, path) })
	c := New(Options{Path: path, Dial: func(ctx context.Context) (net.Conn, error) {
		listen()
		return DialPath(path)(ctx)
	}})
	t.Cleanup(func() { _ = c.Close() })
	answersAgain(t, c, path)
}

// TestStaleNot: another socket at the path is no reason to give up a connection
// that is answered, however slowly.
func TestStaleNot(t *testing.T) {
	rt, path := listen(t, fakeruntime.Options{})
	c := unixClient(t, path)
	if _, err := c.Version(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	must.Do(t, os.Remove(path))
	other := fakeruntime.New(fakeruntime.Options{})
	must.Do(t, other.Listen(path))
	t.Cleanup(other.Stop)
	rt.Set("Version", fakeruntime.Delay(3*staleEvery))
	if _, err := c.Version(within(t, 20*time.Second)); err != nil {
		t.Errorf("a slow answer of a runtime that lives: %v", err)
	}
	if total, _ := other.Accepted(); total != 0 {
		t.Errorf("%d connections to the other runtime", total)
	}
}

// answersAgain has another runtime listen at the path while a call is under way.
// The call must end soon, and the next one be answered.
func answersAgain(t *testing.T, c *Client, path string) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { _, err := c.Version(t.Context()); ended <- err }()
	await(t, "the call is under way", func() bool { // on a connection that is made
		return c.LastDial() != nil && !c.History(OpVersion).InFlightSince.IsZero()
	})
	must.Do(t, os.Remove(path))
	rt := fakeruntime.New(fakeruntime.Options{})
	must.Do(t, rt.Listen(path))
	t.Cleanup(rt.Stop)
	select {
	case err := <-ended:
		if e := failure(t, err); e.Code != CodeUnavailable {
			t.Errorf("the call ended with %+v, want Unavailable", e)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the call hangs on, 30s after another runtime listens")
	}
	if _, err := c.Version(within(t, 20*time.Second)); err != nil {
		t.Errorf("the next call: %v", err)
	}
	if total, _ := rt.Accepted(); total != 1 {
		t.Errorf("%d connections to the runtime, want 1", total)
	}
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	must.Eventually(t, 20*time.Second, what, holds)
}
