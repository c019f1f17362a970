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
	"github.com/plegd/plegd/test/must"
)

// read reads until d has passed; an EOF or reset sets closed.
func read(t *testing.T, c net.Conn, d time.Duration) (got []byte, closed bool) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(d))
	got, err := io.ReadAll(c)
	var ne net.Error
	return got, !errors.As(err, &ne) || !ne.Timeout()
}

// speak sends the begin of every HTTP/2 connection, and a ping, in one write: the other side
// may hang up after the first.
func speak(t *testing.T, c net.Conn) {
	t.Helper()
	var hello bytes.Buffer
	hello.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&hello, nil)
	must.Do(t, errors.Join(f.WriteSettings(), f.WritePing(false, [8]byte{})))
	_, _ = c.Write(hello.Bytes())
}

var settings = []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}

// silence is how long nothing must come for it to count as silence.
const silence = 300 * time.Millisecond

// socketFaults are the faults of the socket with a client's view: what comes, whether the
// connection is closed, and the same once the fault has ended.
var socketFaults = []struct {
	spec   string
	comes  func([]byte) bool
	closed bool
	after  func(got []byte, closed bool) bool
}{
	{"off", answers, false, nil},
	{"noaccept", silent, false, func(got []byte, closed bool) bool { return answers(got) && !closed }}, // what waited is served
	{"close", silent, true, nil},
	{"nosettings", silent, false, func(_ []byte, closed bool) bool { return closed }},
	{"settingsonly", func(got []byte) bool { return bytes.Equal(got, settings) }, false, nil},
	{"garbage", func(got []byte) bool { return len(got) >= 64 && !bytes.Contains(got, settings[:4]) }, false, nil},
	{"freeze", silent, false, nil},
}

func silent(got []byte) bool { return len(got) == 0 }

// answers reports whether SETTINGS and more have come.
func answers(got []byte) bool { return len(got) > len(settings) && got[3] == 4 }

// TestSocketFaults sees each fault with a bare connection: over a unix socket with
// the real clock, and in memory with the bubble's.
func TestSocketFaults(t *testing.T) {
	for _, tt := range socketFaults {
		see := func(t *testing.T, rt *fakeruntime.Runtime) {
			before, _ := rt.Accepted()
			c := dialRaw(t, rt)
			speak(t, c)
			if got, closed := read(t, c, silence); !tt.comes(got) || closed != tt.closed {
				t.Errorf("got %x, closed %v", got, closed)
			}
			if n, _ := rt.Accepted(); (n == before) != (tt.spec == "noaccept" || tt.spec == "freeze") {
				t.Errorf("%d connections accepted", n-before)
			}
			if tt.spec == "garbage" {
				wantStatus(t, version(within(t, 10*time.Second), connect(t, rt)), codes.Unavailable, "")
			}
			if tt.after == nil {
				return
			}
			if err := rt.SetFailpoints("socket=" + tt.spec); err != nil { // again: it changes nothing
				t.Fatal(err)
			}
			if _, closed := read(t, c, silence); closed {
				t.Error("closed though the fault is the same")
			}
			rt.Set(fakeruntime.Socket)
			if got, closed := read(t, c, 2*time.Second); !tt.after(got, closed) {
				t.Errorf("after it: got %x, closed %v", got, closed)
			}
		}
		t.Run(tt.spec+"/unix", func(t *testing.T) {
			t.Parallel() // it waits on the real clock
			rt := fakeruntime.New(fakeruntime.Options{})
			must.Do(t, rt.SetFailpoints("socket="+tt.spec))
			must.Do(t, rt.Listen(filepath.Join(t.TempDir(), "s")))
			t.Cleanup(rt.Stop)
			see(t, rt)
		})
		t.Run(tt.spec+"/memory", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := start(t, fakeruntime.Options{})
				must.Do(t, rt.SetFailpoints("socket="+tt.spec))
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
