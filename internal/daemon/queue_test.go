package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/server"
)

// TestQueueOfAStuckRuntime: every connection to a runtime that does not accept
// stays in its queue, so it gets one a minute at most, plegd's held one included.
func TestQueueOfAStuckRuntime(t *testing.T) {
	const minutes = 6
	for name, stuckFromTheStart := range map[string]bool{"while it is watched": false, "before plegd starts": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				rt := fakeRuntime(10, 2)
				stop := func() {
					if err := rt.SetFailpoints("socket=noaccept;*=hang"); err != nil {
						t.Fatal(err)
					}
				}
				if stuckFromTheStart {
					stop()
				}
				w := watch(t, rt, nil)
				w.at(10 * time.Second)
				if !stuckFromTheStart {
					stop()
				}
				before := rt.Dials()
				if stuckFromTheStart && before != 1 {
					t.Errorf("%d connections in the first 10 s, want 1", before)
				}
				s := w.at(10*time.Second + minutes*time.Minute)
				if s.Verdict.State != health.StateUnhealthy {
					t.Errorf("%s/%s after %d minutes", s.Verdict.State, s.Verdict.Reason, minutes)
				}
				n := rt.Dials() - before
				t.Logf("%d connections in %d minutes", n, minutes)
				if n > minutes {
					t.Errorf("%d connections in %d minutes, want one a minute at most", n, minutes)
				}
			})
		})
	}
}

// TestCheckLeavesOneConnection: diagnoses without a daemon, however many, leave
// one connection in the queue of a stuck runtime; one that asks the daemon none.
func TestCheckLeavesOneConnection(t *testing.T) {
	dir := t.TempDir()
	cfg := DefaultConfig()
	cfg.StateDir = ""
	cfg.RuntimeEndpoint = filepath.Join(dir, "runtime.sock")
	cfg.ControlSocket = filepath.Join(dir, "control.sock")
	cfg.WebListenAddresses, cfg.KubeletHealthzURL = nil, ""
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: cfg.RuntimeEndpoint, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	// waiting counts the connections that wait to be accepted, and accepts them.
	waiting := func() (n int) {
		for {
			if err := l.SetDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			c, err := l.Accept()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return n
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			n++
		}
	}

	for i := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		begun := time.Now()
		s, err := Diagnose(ctx, cfg, exporter.Build{})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if r := s.Verdict.Reason; r != health.RuntimeStarting && r != health.AcceptStalled && r != health.RuntimeUnresponsive {
			t.Errorf("diagnosis %d is %s/%s", i, s.Verdict.State, r)
		}
		t.Logf("diagnosis %d, after %s: %v", i, time.Since(begun), s.Verdict.Active)
	}
	if n := waiting(); n != 1 {
		t.Errorf("3 diagnoses left %d connections in the queue, want 1", n)
	}

	d, err := New(cfg, exporter.Build{}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(run) }()
	for range 20 { // as `plegd check` asks
		for {
			client := server.Client{Socket: cfg.ControlSocket}
			if _, _, err := client.Status(t.Context()); err == nil {
				break
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-t.Context().Done():
				t.Fatal("the control socket does not answer")
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	if n := waiting(); n != 1 {
		t.Errorf("a daemon that was asked 20 times left %d connections in the queue, want 1", n)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
