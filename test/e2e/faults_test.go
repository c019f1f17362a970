//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// oneRelist is how soon the held connection must be back once the runtime is:
// within one relist period, and what a busy machine adds.
const oneRelist = 1500 * time.Millisecond

// firstStatus is how soon all must be well where no Status has been good yet:
// like the kubelet plegd asks for it every 5 s, and calls no node Ready before.
const firstStatus = 7 * time.Second

// TestFaults breaks one runtime in one way after another under one plegd, which
// must name each fault and see each recovery without ever being restarted.
func TestFaults(t *testing.T) {
	t.Parallel()
	lab.Heavy(t)
	s := newSubject(t, lab.PlegdOptions{})
	restored := s.runtime.Socket + ".kept"

	for _, c := range []struct {
		fault
		inject, fix func()
		during      func(t *testing.T)
	}{
		{
			fault:  fault{name: "SIGSTOP", reasons: []string{unresponsive, frozen}, state: degraded, within: 3 * time.Second, onTheWayBack: []string{relistSlow}},
			inject: s.runtime.Freeze,
			fix:    s.runtime.Thaw,
		},
		{
			fault: fault{
				name: "kill -9", reasons: []string{notListening}, state: degraded, within: 3 * time.Second,
				// A starting containerd removes the stale socket before it makes its own.
				onTheWayBack:  []string{socketMissing, runtimeStarting},
				healthyWithin: oneRelist,
			},
			inject: s.runtime.Kill,
			fix:    s.runtime.Start,
		},
		{
			fault: fault{
				name: "SIGTERM", reasons: []string{socketMissing}, state: degraded, within: 3 * time.Second,
				onTheWayBack:  []string{runtimeStarting},
				healthyWithin: oneRelist,
			},
			inject: s.runtime.Terminate,
			fix:    s.runtime.Start,
		},
		{
			fault:  fault{name: "socket unlinked", reasons: []string{socketUnlinked}, state: degraded, within: 4 * time.Second, healthyWithin: 4 * time.Second},
			inject: func() { hide(t, s.runtime.Socket, restored) },
			// The held connection still works, and the relists with it.
			during: func(t *testing.T) { s.relistsSucceed(t, 3) },
			fix:    func() { rename(t, restored, s.runtime.Socket) },
		},
		{
			fault:  fault{name: "no CNI configuration", reasons: []string{networkNotReady}, state: unhealthy, within: 8 * time.Second, healthyWithin: 8 * time.Second},
			inject: func() { remove(t, s.runtime.CNIConfig) },
			during: func(t *testing.T) { s.checkCommand(t, unhealthy, networkNotReady, 2) },
			fix:    s.runtime.WriteCNIConfig,
		},
		{
			fault:  fault{name: "SIGSTOP again", reasons: []string{unresponsive, frozen}, state: degraded, within: 3 * time.Second, onTheWayBack: []string{relistSlow}},
			inject: s.runtime.Freeze,
			fix:    s.runtime.Thaw,
		},
	} {
		ok := t.Run(c.name, func(t *testing.T) {
			during := func(time.Time) {
				if c.during != nil {
					c.during(t)
				}
			}
			s.suffer(t, c.fault, c.inject, during, c.fix)
			s.countsRight(t)
		})
		if !ok {
			break // the next fault would meet a runtime or a verdict that is not well
		}
	}
}

// TestFaultForbidden takes the permission to connect from a plegd that has no
// capability to connect all the same.
func TestFaultForbidden(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.PlegdOptions{DropCapabilities: []string{"dac_override", "dac_read_search"}})
	mode := fileMode(t, s.runtime.Socket)
	s.suffer(t,
		fault{name: "socket forbidden", reasons: []string{permissionDenied}, state: degraded, within: 4 * time.Second, healthyWithin: 4 * time.Second},
		func() { chmod(t, s.runtime.Socket, 0) },
		func(time.Time) { s.relistsSucceed(t, 3) },
		func() { chmod(t, s.runtime.Socket, mode) })
}

// TestFaultForbiddenFromStart is the same where no connection is held.
func TestFaultForbiddenFromStart(t *testing.T) {
	t.Parallel()
	runtime := lab.NewContainerd(t, lab.ContainerdOptions{})
	mode := fileMode(t, runtime.Socket)
	chmod(t, runtime.Socket, 0)
	plegd := lab.NewPlegd(t, runtime.Socket, lab.PlegdOptions{DropCapabilities: []string{"dac_override", "dac_read_search"}})
	s := &subject{t: t, runtime: runtime, plegd: plegd, watch: lab.NewWatch(t, plegd)}
	s.suffer(t,
		fault{name: "socket forbidden at start", fromStart: true, reasons: []string{permissionDenied}, state: starting, within: 3 * time.Second, onTheWay: []string{"Starting"}, healthyWithin: firstStatus},
		func() {}, nil,
		func() { chmod(t, runtime.Socket, mode) })
}

// TestRuntimeComesLater starts plegd on a node whose runtime is not there yet.
func TestRuntimeComesLater(t *testing.T) {
	t.Parallel()
	runtime := lab.NewContainerd(t, lab.ContainerdOptions{NotStarted: true})
	plegd := lab.NewPlegd(t, runtime.Socket, lab.PlegdOptions{})
	s := &subject{t: t, runtime: runtime, plegd: plegd, watch: lab.NewWatch(t, plegd)}
	s.suffer(t,
		fault{
			name: "runtime comes later", fromStart: true, reasons: []string{socketMissing}, state: starting, within: 3 * time.Second,
			onTheWay: []string{"Starting"}, onTheWayBack: []string{runtimeStarting}, healthyWithin: firstStatus,
		},
		func() {},
		func(time.Time) {
			code, body, err := plegd.Get("/healthz")
			if err != nil || code != 200 {
				t.Errorf("/healthz of a plegd that is starting: %d %q %v, want 200", code, body, err)
			}
			if code, body, err := plegd.Get("/-/ready"); err != nil || code != 200 {
				t.Errorf("/-/ready after the first attempt: %d %q %v, want 200", code, body, err)
			}
		},
		runtime.Start)
}

// TestRuntimeRestarts restarts containerd as an upgrade of it does. The verdict
// may change on the way; the pods must not seem to.
func TestRuntimeRestarts(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.PlegdOptions{})
	logged := s.plegd.Log.Len()
	began := time.Now()
	s.runtime.Terminate()
	s.runtime.Start()
	answered := time.Now()
	back := s.watch.Await(answered, oneRelist, "a relist has succeeded since", func(sight lab.Sight) bool {
		return well(sight.Status) && sight.Relist.Failures == 0 && sight.LastSeen != nil && sight.LastSeen.After(began)
	})
	lab.ReportFault(t, "restart", "", "", seconds(max(0, back.At.Sub(answered))))
	lab.Throughout(t, calm, "all stays well", func() error {
		status, err := s.plegd.Status()
		if err == nil && !well(status) {
			err = fmt.Errorf("%s, %s: %+v", status.State, status.Reason, status.Reasons)
		}
		return err
	})
	for _, reason := range lab.Reasons(s.watch.Sights(began)) {
		if !slices.Contains(append([]string{socketMissing, notListening, runtimeStarting}, machine...), reason) {
			t.Errorf("%s was the primary reason: %s", reason, lab.Story(s.watch.Sights(began), began))
		}
	}
	s.countsRight(t)
	if events := s.plegd.Log.Events(logged); len(events) > 0 {
		t.Errorf("a restart of the runtime made events: %v", events)
	}
}

// countsRight checks that the runtime's pods are all there, as far as plegd
// knows: no fault of these ends one.
func (s *subject) countsRight(t *testing.T) {
	t.Helper()
	status, err := s.plegd.Status()
	if err != nil {
		t.Fatal(err)
	}
	if status.Pods.Running == nil || *status.Pods.Running != 3 || status.Pods.Containers["running"] != 3 {
		t.Errorf("pods are %+v, want 3 that run, with a container each", status.Pods)
	}
}

// relistsSucceed waits for some more relists, all successful.
func (s *subject) relistsSucceed(t *testing.T, n int) {
	t.Helper()
	value := func(result string) float64 {
		v, ok := s.plegd.MustMetrics().Value("pleg_relists_total", "result", result)
		if !ok {
			t.Fatalf("there is no pleg_relists_total{result=%q}", result)
		}
		return v
	}
	success, failure := value("success"), value("failure")
	s.plegd.AwaitRelists(time.Duration(n+3)*time.Second, uint64(n))
	if value("failure") != failure {
		t.Error("a relist has failed, though the held connection works")
	}
	if got := value("success") - success; got < float64(n-1) {
		t.Errorf("%.0f relists have succeeded, want %d or so", got, n)
	}
}

func hide(t *testing.T, path, kept string) {
	t.Helper()
	if err := os.Link(path, kept); err != nil {
		t.Fatal(err)
	}
	remove(t, path)
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func fileMode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}
