package evidence_test

import (
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence"
)

// TestLookFirst: nobody is sent into a queue in which somebody waits.
func TestLookFirst(t *testing.T) {
	listen := func(t *testing.T, path string) *net.UnixListener {
		t.Helper()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	connect := func(ctx context.Context, path string) error {
		c, err := evidence.LookFirst(func() string { return path })(ctx)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	wait := func(t *testing.T, path string) net.Conn {
		t.Helper()
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}

	t.Run("nobody waits", func(t *testing.T) {
		path := shortDir(t) + "/s"
		listen(t, path)
		if err := connect(t.Context(), path); err != nil {
			t.Error(err)
		}
	})
	t.Run("one waits, and is gone", func(t *testing.T) {
		path := shortDir(t) + "/s"
		l := listen(t, path)
		_ = wait(t, path).Close() // which takes it not out of the queue
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := connect(short, path); err == nil {
			t.Fatal("it has connected")
		}
		made := make(chan error, 1)
		go func() { made <- connect(t.Context(), path) }()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		select {
		case err := <-made:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Error("it has not connected to the empty queue within 20s")
		}
	})
	t.Run("a full queue", func(t *testing.T) {
		path := shortDir(t) + "/s"
		bind(t, path, unix.SOCK_STREAM, 0)
		fill(t, path)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := connect(ctx, path); err == nil || ctx.Err() != nil {
			t.Errorf("connecting came to %v, want EAGAIN at once", err)
		}
	})
	t.Run("nobody listens", func(t *testing.T) {
		if err := connect(t.Context(), shortDir(t)+"/s"); err == nil {
			t.Error("it has connected")
		}
	})
}
