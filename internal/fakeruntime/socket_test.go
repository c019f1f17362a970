package fakeruntime_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plegd/plegd/internal/fakeruntime"
)

// readFull reads n bytes, which are to come: it waits for long.
func readFull(t *testing.T, c net.Conn, n int) []byte {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	b := make([]byte, n)
	if got, err := io.ReadFull(c, b); err != nil {
		t.Fatalf("got %x, %v; want %d bytes", b[:got], err, n)
	}
	return b
}

// readFor reads what comes within d, which is to be nothing more; an EOF or reset
// is told by closed.
func readFor(t *testing.T, c net.Conn, d time.Duration) (got []byte, closed bool) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(d))
	got, err := io.ReadAll(c)
	var ne net.Error
	timeout := errors.As(err, &ne) && ne.Timeout()
	return got, !timeout
}

// speak sends what every HTTP/2 client sends first.
func speak(t *testing.T, c net.Conn) *http2.Framer {
	t.Helper()
	var hello bytes.Buffer // one write: the other side may hang up after the first
	hello.WriteString(http2.ClientPreface)
	if err := http2.NewFramer(&hello, nil).WriteSettings(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(hello.Bytes()); err != nil {
		t.Fatal(err)
	}
	return http2.NewFramer(c, c)
}

var settings = []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}

// silence is how long nothing must come for it to count as silence.
const silence = 300 * time.Millisecond

// socketFaults are the faults of the socket, each with what a client must see.
var socketFaults = map[string]func(t *testing.T, rt *fakeruntime.Runtime){
	"off": func(t *testing.T, rt *fakeruntime.Runtime) {
		if got := readFull(t, dialRaw(t, rt), 9); got[3] != 4 {
			t.Errorf("got %x; want SETTINGS", got)
		}
	},
	"noaccept": func(t *testing.T, rt *fakeruntime.Runtime) {
		before, _ := rt.Accepted()
		c := dialRaw(t, rt)
		speak(t, c)
		if got, closed := readFor(t, c, silence); len(got) > 0 || closed {
			t.Errorf("got %x, closed %v; want silence", got, closed)
		}
		if n, _ := rt.Accepted(); n != before {
			t.Errorf("%d connections accepted", n-before)
		}
		// What waited is served afterwards.
		rt.Set(fakeruntime.Socket)
		if got := readFull(t, c, 9); got[3] != 4 {
			t.Errorf("after it: got %x; want SETTINGS", got)
		}
	},
	"close": func(t *testing.T, rt *fakeruntime.Runtime) {
		if got, closed := readFor(t, dialRaw(t, rt), 10*time.Second); len(got) > 0 || !closed {
			t.Errorf("got %x, closed %v; want EOF", got, closed)
		}
	},
	"nosettings": func(t *testing.T, rt *fakeruntime.Runtime) {
		c := dialRaw(t, rt)
		speak(t, c)
		if got, closed := readFor(t, c, silence); len(got) > 0 || closed {
			t.Errorf("got %x, closed %v; want silence", got, closed)
		}
		// Setting it again changes nothing, setting another closes it.
		rt.Set(fakeruntime.Socket, fakeruntime.NoSettings())
		if _, closed := readFor(t, c, silence); closed {
			t.Error("closed though the fault is what it was")
		}
		rt.Set(fakeruntime.Socket, fakeruntime.Off())
		if _, closed := readFor(t, c, 10*time.Second); !closed {
			t.Error("still open though the fault is gone")
		}
	},
	"settingsonly": func(t *testing.T, rt *fakeruntime.Runtime) {
		c := dialRaw(t, rt)
		f := speak(t, c)
		if err := f.WritePing(false, [8]byte{}); err != nil {
			t.Fatal(err)
		}
		if got := readFull(t, c, 9); !bytes.Equal(got, settings) {
			t.Errorf("got %x; want one SETTINGS frame", got)
		}
		if got, closed := readFor(t, c, silence); len(got) > 0 || closed {
			t.Errorf("after it: %x, closed %v; want silence", got, closed)
		}
	},
	"speaksecond": func(t *testing.T, rt *fakeruntime.Runtime) {
		c := dialRaw(t, rt)
		if got, closed := readFor(t, c, silence); len(got) > 0 || closed {
			t.Errorf("before the client spoke: %x, closed %v; want silence", got, closed)
		}
		f := speak(t, c)
		if err := f.WritePing(false, [8]byte{1}); err != nil {
			t.Fatal(err)
		}
		if got := readFull(t, c, 9); !bytes.Equal(got, settings) {
			t.Errorf("after it: %x; want one SETTINGS frame", got)
		}
		if got, closed := readFor(t, c, silence); len(got) > 0 || closed {
			t.Errorf("the PING was answered: %x, closed %v; want silence until HEADERS", got, closed)
		}
		info := dialRaw(t, rt)
		req, _ := http.NewRequest(http.MethodGet, "http://unix/info", nil)
		if err := req.Write(info); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(info), req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("GET /info: %v, %v", resp, err)
		}
		_ = resp.Body.Close()
		if err := version(within(t, 10*time.Second), connect(t, rt)); err != nil {
			t.Errorf("gRPC: %v", err)
		}
	},
	"drip(3,50ms)": func(t *testing.T, rt *fakeruntime.Runtime) {
		start := time.Now()
		c := dialRaw(t, rt)
		head := make([]byte, 9)
		if _, err := io.ReadFull(c, head); err != nil || head[3] != 4 {
			t.Fatalf("%x, %v", head, err)
		}
		if d := time.Since(start); d < 100*time.Millisecond {
			t.Errorf("9 bytes came in %v, want 100ms or more", d)
		}
	},
	"garbage": func(t *testing.T, rt *fakeruntime.Runtime) {
		c := dialRaw(t, rt)
		if got := readFull(t, c, 64); bytes.Contains(got, settings[:4]) {
			t.Errorf("got %x", got)
		}
		if got, closed := readFor(t, c, silence); len(got) > 0 || closed {
			t.Errorf("after it: %x, closed %v", got, closed)
		}
		err := version(within(t, 10*time.Second), connect(t, rt))
		wantStatus(t, err, codes.Unavailable, "")
	},
	"http1": func(t *testing.T, rt *fakeruntime.Runtime) {
		c := dialRaw(t, rt)
		speak(t, c)
		if got, _ := readFor(t, c, 10*time.Second); !strings.HasPrefix(string(got), "HTTP/1.1 ") {
			t.Errorf("got %q", got)
		}
		err := version(within(t, 10*time.Second), connect(t, rt))
		wantStatus(t, err, codes.Unavailable, "")
	},
	"freeze": func(t *testing.T, rt *fakeruntime.Runtime) {
		c := dialRaw(t, rt)
		speak(t, c)
		if got, closed := readFor(t, c, silence); len(got) > 0 || closed {
			t.Errorf("got %x, closed %v; want silence", got, closed)
		}
	},
}

// TestSocketFaults sees each fault with a bare connection: over a unix socket with
// the real clock, and in memory with the bubble's.
func TestSocketFaults(t *testing.T) {
	for spec, see := range socketFaults {
		t.Run(spec+"/unix", func(t *testing.T) {
			t.Parallel() // it waits on the real clock
			rt := fakeruntime.New(fakeruntime.Options{})
			if err := rt.SetFailpoints("socket=" + spec); err != nil {
				t.Fatal(err)
			}
			if err := rt.Listen(filepath.Join(t.TempDir(), "s")); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(rt.Stop)
			see(t, rt)
		})
		t.Run(spec+"/memory", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := start(t, fakeruntime.Options{})
				if err := rt.SetFailpoints("socket=" + spec); err != nil {
					t.Fatal(err)
				}
				see(t, rt)
			})
		})
	}
}

// TestSocketCounts: a count of a fault on the socket is one of connections.
func TestSocketCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := start(t, fakeruntime.Options{})
		if err := rt.SetFailpoints("socket=1*off->2*close->noaccept"); err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"served", "closed", "closed", "silent", "silent"} {
			got, closed := readFor(t, dialRaw(t, rt), time.Second)
			is := "silent"
			switch {
			case closed:
				is = "closed"
			case len(got) > 0:
				is = "served"
			}
			if is != want {
				t.Errorf("connection %d is %s, want %s", i, is, want)
			}
		}
		if got := rt.Failpoints().String(); got != "socket=noaccept" {
			t.Errorf("left: %s", got)
		}
	})
}

// TestHeldConnection: what a fault on the socket does to a connection that gRPC
// had before it.
func TestHeldConnection(t *testing.T) {
	for spec, want := range map[string]codes.Code{
		"noaccept": codes.OK, "close": codes.OK, "nosettings": codes.OK, "garbage": codes.OK,
		"speaksecond": codes.OK, "http1": codes.OK, "settingsonly": codes.OK,
		"drip(1,1s)": codes.DeadlineExceeded, "freeze": codes.DeadlineExceeded,
	} {
		t.Run(spec, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := start(t, fakeruntime.Options{})
				rt.FillPods(5, 2)
				c := connect(t, rt)
				if err := version(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				rt.Set(fakeruntime.Socket, fakeruntime.Off().Times(1), fakeruntime.Off()) // still nothing
				if err := rt.SetFailpoints("socket=" + spec); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				_, err := list(within(t, 2*time.Minute), c)
				if status.Code(err) != want {
					t.Errorf("%v, want %v", err, want)
				}
				if d := time.Since(start); want == codes.DeadlineExceeded && d != 2*time.Minute {
					t.Errorf("it took %v", d)
				}
				if err := rt.SetFailpoints(""); err != nil {
					t.Fatal(err)
				}
				if n, err := list(within(t, time.Second), c); n != 10 || err != nil {
					t.Errorf("after the fault: %d containers, %v", n, err)
				}
				if n, _ := rt.Accepted(); n != 1 {
					t.Errorf("%d connections were made, want the one to last", n)
				}
			})
		})
	}
}

// TestFreezeLeavesBytesUnread: what tells a stopped process from one that is out
// of file descriptors is that the bytes sent to it stay in the kernel.
func TestFreezeLeavesBytesUnread(t *testing.T) {
	rt := fakeruntime.New(fakeruntime.Options{})
	if err := rt.Listen(filepath.Join(t.TempDir(), "s")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rt.Stop)
	c := dialRaw(t, rt)
	readFull(t, c, 9)
	rt.Set(fakeruntime.Socket, fakeruntime.Freeze())
	hello := []byte(http2.ClientPreface)
	// The reader may take what comes in the very moment of the freeze, so two.
	for _, part := range [][]byte{hello[:4], hello[4:8]} {
		if _, err := c.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if unread(t, c) == 0 {
		t.Error("a frozen runtime has read what was sent to it")
	}
	rt.Set(fakeruntime.Socket)
	deadline := time.Now().Add(20 * time.Second)
	for unread(t, c) != 0 {
		if time.Now().After(deadline) {
			t.Fatal("after the freeze the bytes are still unread")
		}
	}
	rt.Set(fakeruntime.Socket, fakeruntime.Freeze())
	done := make(chan struct{})
	go func() { rt.Stop(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("a frozen runtime does not stop")
	}
}

// unread returns how much memory the kernel holds of what was sent and not read.
func unread(t *testing.T, c net.Conn) int {
	t.Helper()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	var ioctlErr error
	if err := raw.Control(func(fd uintptr) { n, ioctlErr = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil || ioctlErr != nil {
		t.Fatal(err, ioctlErr)
	}
	return n
}

// TestUnixSocket: mode, restart in place, what is left behind.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runtime.sock")
	rt := fakeruntime.New(fakeruntime.Options{})
	if err := rt.Listen(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rt.Stop)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info.Mode(), err)
	}
	c := connect(t, rt)
	ctx := within(t, 20*time.Second)
	if err := version(ctx, c); err != nil {
		t.Fatal(err)
	}
	rt.Kill()
	if _, err := rt.Dialer()(ctx); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial after Kill: %v", err)
	}
	if err := rt.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := cVersionReady(t, rt); err != nil {
		t.Error(err)
	}
	// Another process's socket is not taken away.
	if err := fakeruntime.New(fakeruntime.Options{}).Listen(path); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listen where somebody listens: %v", err)
	}
	rt.Stop()
	if _, err := rt.Dialer()(ctx); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("dial after Stop: %v", err)
	}
	if err := rt.Listen("/" + strings.Repeat("x", 107)); err == nil || !strings.Contains(err.Error(), "at most 107") {
		t.Errorf("too long a path: %v", err)
	}
}

func cVersionReady(t *testing.T, rt *fakeruntime.Runtime) error {
	t.Helper()
	return version(within(t, 10*time.Second), connect(t, rt, grpc.WithDefaultCallOptions(grpc.WaitForReady(true))))
}

// TestStopWithHalfOpenConnections: Stop does not wait for clients that never
// speak, with any fault.
func TestStopWithHalfOpenConnections(t *testing.T) {
	for _, spec := range []string{"off", "noaccept", "nosettings", "settingsonly", "speaksecond", "drip(1,1h)", "garbage", "http1", "freeze"} {
		synctest.Test(t, func(t *testing.T) {
			rt := start(t, fakeruntime.Options{})
			if err := rt.SetFailpoints("socket=" + spec); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				dialRaw(t, rt)
			}
			synctest.Wait()
			began := time.Now()
			rt.Stop()
			if d := time.Since(began); d != 0 {
				t.Errorf("%s: Stop took %v", spec, d)
			}
			if _, open := rt.Accepted(); open != 0 {
				t.Errorf("%s: %d connections are open", spec, open)
			}
		})
	}
}
