package evidence_test

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
)

// next waits for a probe that ends.
func next(t *testing.T, done <-chan health.Probe) health.Probe {
	t.Helper()
	select {
	case p := <-done:
		return p
	case <-time.After(20 * time.Second):
		t.Fatal("no probe ended in 20s")
		return health.Probe{}
	}
}

// dialUnix runs a Dialer on a path until the test ends.
func dialUnix(t *testing.T, path func() string, timeout time.Duration) (*evidence.Dialer, <-chan health.Probe) {
	t.Helper()
	done := make(chan health.Probe, 1000)
	d := evidence.NewDialer(evidence.DialOptions{Path: path, Period: 10 * time.Millisecond, Timeout: timeout, Done: func(p health.Probe) { done <- p }})
	ended := make(chan error, 1)
	ctx := t.Context()
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() { // the test's context has ended
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Second):
			t.Error("Run continues 5s after its end")
		}
		goleak.VerifyNone(t, goleak.IgnoreCurrent())
	})
	return d, done
}

// TestDialUnix sees the same over a real socket.
func TestDialUnix(t *testing.T) {
	for _, tt := range []struct {
		name    string
		make    func(t *testing.T, path string)
		timeout time.Duration
		stage   health.Stage
		cause   health.Cause
	}{
		{"well", runtimeWith(), 10 * time.Second, "", health.CauseNone},
		{"a full queue", func(t *testing.T, path string) { bind(t, path, unix.SOCK_STREAM, 0); fill(t, path) }, 10 * time.Second, health.StageConnect, health.CauseQueueFull},
		{"nobody accepts", func(t *testing.T, path string) { bind(t, path, unix.SOCK_STREAM, 5) }, 50 * time.Millisecond, health.StageSettings, health.CauseTimeout},
		{"no settings", runtimeWith(fakeruntime.NoSettings()), 50 * time.Millisecond, health.StageSettings, health.CauseTimeout},
		{"hung up on", runtimeWith(fakeruntime.Close()), 10 * time.Second, health.StageSettings, health.CauseClosed},
		{"garbage", runtimeWith(fakeruntime.Garbage()), 10 * time.Second, health.StageSettings, health.CauseProtocol},
		{"settings only", runtimeWith(fakeruntime.SettingsOnly()), 200 * time.Millisecond, health.StageRPC, health.CauseTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := shortDir(t) + "/s"
			tt.make(t, path)
			d, done := dialUnix(t, func() string { return path }, tt.timeout)
			probes := 20
			seen := map[health.Cause]int{}
			if tt.cause == health.CauseTimeout || tt.stage == health.StageConnect {
				probes = 1 // the next one waits
			}
			for range probes {
				p := next(t, done)
				seen[p.Cause]++
				if tt.cause == health.CauseProtocol && p.Cause == health.CauseClosed {
					continue // it hung up before it was understood: true as well
				}
				if p.OK != (tt.cause == health.CauseNone) || p.Stage != tt.stage || p.Cause != tt.cause {
					t.Fatalf("%+v, want %q and %q", p, tt.stage, tt.cause)
				}
			}
			if seen[tt.cause] < (probes+1)/2 {
				t.Errorf("causes %v, want mostly %q", seen, tt.cause)
			}
			if pid, at := d.Peer(); tt.stage != health.StageConnect && (pid != os.Getpid() || at.IsZero()) || tt.stage == health.StageConnect && pid != 0 {
				t.Errorf("pid %d listened at %v", pid, at)
			}
		})
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

// TestDialUnixEndsInBetween: a runtime that ends between its SETTINGS and the
// Version call has not shown that it speaks no gRPC.
func TestDialUnixEndsInBetween(t *testing.T) {
	for range 10 {
		path := shortDir(t) + "/s"
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
		_, done := dialUnix(t, func() string { return path }, 10*time.Second)
		p := next(t, done)
		missing := p.Stage == health.StageConnect && p.Cause == health.CauseMissing
		if !missing && p.Cause != health.CauseClosed {
			t.Errorf("%+v, want that the path is gone or that the connection was closed", p)
		}
	}
}

// TestDialMoved: a probe that waits for who never answers is given up when the
// path leads to somebody else.
func TestDialMoved(t *testing.T) {
	dir := shortDir(t)
	path := dir + "/s"
	bind(t, path, unix.SOCK_STREAM, 5)
	d, done := dialUnix(t, func() string { return path }, 50*time.Millisecond)
	if p := next(t, done); p.Cause != health.CauseTimeout {
		t.Fatalf("%+v", p)
	}
	runtimeWith()(t, dir+"/r")
	if err := os.Rename(dir+"/r", path); err != nil {
		t.Fatal(err)
	}
	d.Moved()
	for p := next(t, done); !p.OK; p = next(t, done) {
		if p.Cause != health.CauseTimeout || time.Since(p.At) > 20*time.Second { // it may take 50 ms to answer
			t.Fatalf("%+v", p)
		}
	}
}

// TestDialVersionOfAnother: the version that another process reports is not taken for the
// runtime's.
func TestDialVersionOfAnother(t *testing.T) {
	path := shortDir(t) + "/s"
	runtimeWith()(t, path)
	for serves, want := range map[bool]bool{true: true, false: false} {
		done := make(chan health.Probe, 1000)
		asked := 0
		d := evidence.NewDialer(evidence.DialOptions{
			Path: func() string { return path }, Period: time.Millisecond, Timeout: 10 * time.Second, Done: func(p health.Probe) { done <- p },
			Serves: func(pid int) bool { asked = pid; return serves },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		if p := next(t, done); !p.OK {
			t.Errorf("%+v", p)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := d.Version() != nil; got != want || asked != os.Getpid() {
			t.Errorf("serves %v: version %v, asked of pid %d", serves, got, asked)
		}
	}
}
