package fakeruntime_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"

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

// readFor reads until d has passed; an EOF or reset sets closed.
func readFor(t *testing.T, c net.Conn, d time.Duration) (got []byte, closed bool) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(d))
	got, err := io.ReadAll(c)
	var ne net.Error
	timeout := errors.As(err, &ne) && ne.Timeout()
	return got, !timeout
}

// speak sends the begin of every HTTP/2 connection.
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

// socketFaults are the faults of the socket, each with a client's view.
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
			t.Error("closed though the fault is the same")
		}
		rt.Set(fakeruntime.Socket)
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
				for range 3 { // Stop does not wait for clients that never speak
					dialRaw(t, rt)
				}
				synctest.Wait()
				began := time.Now()
				rt.Stop()
				if _, open := rt.Accepted(); open != 0 || time.Since(began) != 0 {
					t.Errorf("Stop took %v, %d connections are open", time.Since(began), open)
				}
			})
		})
	}
}
