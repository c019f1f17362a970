package cri

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/fakeruntime"
)

// dyingEnv makes the test binary a runtime that dies: see dieWithConnection.
const dyingEnv = "PLEGD_TEST_DYING_RUNTIME"

// dieWithConnection listens at a path, accepts one connection, sends SETTINGS on
// it and ends, while a child keeps the connection open: what a runtime does that
// is killed between fork and exec.
func dieWithConnection(path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	if _, err := conn.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}); err != nil {
		return err
	}
	f, err := conn.(*net.UnixConn).File()
	if err != nil {
		return err
	}
	child := exec.Command("cat") // it ends with the test's end of its input
	child.Stdin, child.ExtraFiles = os.Stdin, []*os.File{f}
	return child.Start()
}

// TestStaleAccepted: a connection that was accepted is kept, as the kubelet keeps it,
// also after its runtime has died and another one listens at the path.
func TestStaleAccepted(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	dying := exec.Command(os.Args[0])
	dying.Env = append(os.Environ(), dyingEnv+"="+path)
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dying.Stdin = output
	if err := dying.Start(); err != nil {
		t.Fatal(err)
	}
	_ = output.Close()
	t.Cleanup(func() { _ = input.Close() })
	c := staleClient(t, path)
	await(t, "the runtime listens", func() bool { return c.Connect(within(t, 20*time.Second)) == nil })
	if err := dying.Wait(); err != nil {
		t.Fatal(err)
	}
	_, err = c.Version(within(t, 3*time.Second))
	if failure(t, err).Code != CodeDeadlineExceeded {
		t.Fatalf("%v before another runtime listens; the connection was to stay open", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, err = c.Version(within(t, 3*time.Second))
	if failure(t, err).Code != CodeDeadlineExceeded {
		t.Fatalf("%v; the connection was to be kept", err)
	}
}

// TestStaleInQueue: a connection in the accept queue of a listener that is no
// longer at the path is given up. The listener lives on, as a copy of its
// descriptor does.
func TestStaleInQueue(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	t.Cleanup(func() { _ = l.Close() })
	c := staleClient(t, path)
	_, err = c.Version(within(t, 3*time.Second))
	if failure(t, err).Code != CodeDeadlineExceeded {
		t.Fatal(err)
	}
	if _, waiting := c.Waiting(); !waiting {
		t.Fatal("the connection does not wait in the queue")
	}
	answersAgain(t, c, path)
}

// TestStaleAtOnce: the first socket comes to the path in the moment of the connection.
func TestStaleAtOnce(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	listen := sync.OnceFunc(func() {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Error(err)
			return
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		t.Cleanup(func() { _ = l.Close() })
	})
	c, err := New(Options{Path: path, Dial: func(ctx context.Context) (net.Conn, error) {
		listen()
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	answersAgain(t, c, path)
}

// TestStaleNot: another socket at the path is no reason to give up a connection
// that is answered, however slowly.
func TestStaleNot(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	rt := fakeruntime.New(fakeruntime.Options{})
	if err := rt.Listen(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rt.Stop)
	c := staleClient(t, path)
	if _, err := c.Version(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other := fakeruntime.New(fakeruntime.Options{})
	if err := other.Listen(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Stop)
	rt.Set("Version", fakeruntime.Delay(3*staleEvery))
	if _, err := c.Version(within(t, 20*time.Second)); err != nil {
		t.Errorf("a slow answer of a runtime that lives: %v", err)
	}
	if total, _ := other.Accepted(); total != 0 {
		t.Errorf("%d connections to the other runtime", total)
	}
}

// staleClient returns a client of a unix socket.
func staleClient(t *testing.T, path string) *Client {
	t.Helper()
	c, err := New(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// answersAgain has another runtime listen at the path while a call is under way.
// The call must end soon, and the next one be answered.
func answersAgain(t *testing.T, c *Client, path string) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { _, err := c.Version(t.Context()); ended <- err }()
	await(t, "the call is under way", func() bool { // on a connection whose socket is known
		return c.socket.Load() != nil && !c.History(OpVersion).InFlightSince.IsZero()
	})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	rt := fakeruntime.New(fakeruntime.Options{})
	if err := rt.Listen(path); err != nil {
		t.Fatal(err)
	}
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
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20s: %s", what)
		}
	}
}

// shortDir returns a directory whose name leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") //nolint:usetesting // a test's own directory is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
