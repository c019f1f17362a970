package relist

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

// eventedLoop is a loop that relies on events, on a script with one pod.
type eventedLoop struct {
	*Loop
	t  *testing.T
	rt *script
}

func newEvented(t *testing.T) *eventedLoop {
	rt := newScript(t)
	rt.sandboxes = []*cri.Sandbox{sandbox("a", "sa", true)}
	rt.containers = []*cri.Container{container("a", "ca", cri.StateRunning)}
	rt.ips["sa"] = []string{"10.0.0.1"}
	l := &eventedLoop{New(rt, Config{Period: DefaultPeriod, InspectConcurrency: 4, InspectTimeout: 10 * time.Second, Mode: Evented}, nil), t, rt}
	run(t, l.Loop)
	l.Listening(true)
	l.UseEvents(true)
	time.Sleep(2 * time.Second)
	synctest.Wait()
	if s := l.Snapshot(); !s.Evented || s.Period != EventedPeriod || s.RunningPods != 1 {
		t.Fatalf("%+v", *s)
	}
	drain(l.Loop)
	return l
}

// tell hands over an event of now and returns the pod lifecycle events that come
// of it.
func (l *eventedLoop) tell(kind cri.EventType, id string, ready bool, ips []string, containers ...*cri.ContainerStatus) []string {
	l.t.Helper()
	time.Sleep(time.Millisecond)
	now := time.Now()
	return l.tellAt(now, kind, id, ready, ips, containers...)
}

func (l *eventedLoop) tellAt(at time.Time, kind cri.EventType, id string, ready bool, ips []string, containers ...*cri.ContainerStatus) []string {
	l.t.Helper()
	l.Tell(&cri.ContainerEvent{
		Type: kind, ContainerID: id, CreatedAt: at.UnixNano(), Received: time.Now(), HasSandbox: true,
		PodUID: "a", PodName: "pod-a", PodNamespace: "ns",
		Sandbox: &cri.SandboxStatus{ID: "sa", Ready: ready, IPs: ips, CreatedAt: 1}, Containers: containers,
	})
	synctest.Wait()
	return names(drain(l.Loop))
}

func names(events []Event) []string {
	out := []string{}
	for _, e := range events {
		s := string(e.Type) + " " + e.ID
		if e.HasExitCode {
			s += fmt.Sprintf(" %d", e.ExitCode)
		}
		out = append(out, s)
	}
	return out
}

func (l *eventedLoop) want(what string, got []string, want ...string) {
	l.t.Helper()
	if !slices.Equal(got, want) {
		l.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (l *eventedLoop) counts(what string, pods, created, running, exited int) {
	l.t.Helper()
	s := l.Snapshot()
	if got, want := [4]int{s.RunningPods, s.Containers[cri.StateCreated], s.Containers[cri.StateRunning], s.Containers[cri.StateExited]}, [4]int{pods, created, running, exited}; got != want {
		l.t.Errorf("%s: pods, created, running, exited are %v, want %v", what, got, want)
	}
}

func status(id string, state cri.State, code int32) *cri.ContainerStatus {
	return &cri.ContainerStatus{ID: id, Name: "name-" + id, State: state, ExitCode: code}
}

// TestLifeByEvents: what the kubelet's evented PLEG makes of each event, and what
// stays in the cache; the relist after it finds nothing new.
func TestLifeByEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newEvented(t)
		ca, ip := status("ca", cri.StateRunning, 0), []string{"10.0.0.1"}
		l.want("created", l.tell(cri.EventCreated, "x", true, ip, ca, status("x", cri.StateCreated, 0)))
		l.counts("created", 1, 1, 1, 0)
		if s := l.Cache().Get("a"); len(s.Containers) != 2 {
			t.Errorf("a creation does not update the status: %+v", s)
		}
		l.want("started", l.tell(cri.EventStarted, "x", true, ip, ca, status("x", cri.StateRunning, 0)), "ContainerStarted x")
		l.counts("started", 1, 0, 2, 0)
		l.want("stopped", l.tell(cri.EventStopped, "x", true, ip, ca, status("x", cri.StateExited, 7)), "ContainerDied x 7")
		l.counts("stopped", 1, 0, 1, 1)
		l.want("deleted", l.tell(cri.EventDeleted, "x", true, ip, ca), "ContainerDied x", "ContainerRemoved x")
		l.counts("deleted", 1, 0, 1, 0)
		l.want("stopped ca", l.tell(cri.EventStopped, "ca", true, ip, status("ca", cri.StateExited, 0)), "ContainerDied ca 0")
		l.want("sandbox stopped", l.tell(cri.EventStopped, "sa", false, nil, status("ca", cri.StateExited, 0)), "ContainerDied sa")
		l.counts("all stopped", 0, 0, 0, 1)
		if s := l.Cache().Get("a"); !slices.Equal(s.IPs, ip) {
			t.Errorf("the addresses after the teardown are %v, want %v", s.IPs, ip)
		}

		l.rt.set(func(s *script) {
			s.sandboxes = []*cri.Sandbox{sandbox("a", "sa", false)}
			s.containers = []*cri.Container{container("a", "ca", cri.StateExited)}
		})
		seen := l.Snapshot().LastSeen
		<-l.Relist()
		synctest.Wait()
		if !l.Snapshot().LastSeen.After(seen) {
			t.Fatal("no relist was made: this test tests nothing")
		}
		l.want("the relist", names(drain(l.Loop)))
		l.counts("the relist", 0, 0, 0, 1)

		l.want("deleted ca", l.tell(cri.EventDeleted, "ca", false, nil), "ContainerDied ca", "ContainerRemoved ca")
		l.want("deleted sa", l.tell(cri.EventDeleted, "sa", false, nil), "ContainerDied sa", "ContainerRemoved sa")
		l.counts("gone", 0, 0, 0, 0)
		if l.Cache().Len() != 0 {
			t.Error("the pod is gone, and still in the cache")
		}
		l.want("late", l.tell(cri.EventStopped, "ca", false, nil, status("ca", cri.StateExited, 0)))
		if l.Cache().Len() != 0 || l.Snapshot().Trust.Gone != 1 {
			t.Errorf("an event of a pod that is gone brought it back: %d in the cache, %+v", l.Cache().Len(), l.Snapshot().Trust)
		}

		l.rt.set(func(s *script) { s.sandboxes, s.containers = nil, nil })
		<-l.Relist()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		l.want("the last relist", names(drain(l.Loop)))
		if s := l.Snapshot(); len(l.records.pods) != 0 || s.Trust.Missed != 0 {
			t.Errorf("%d pods are remembered, %+v", len(l.records.pods), s.Trust)
		}
	})
}

// TestOddEvents: each is counted, and none does harm.
func TestOddEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newEvented(t)
		ip := []string{"10.0.0.1"}
		ca := status("ca", cri.StateRunning, 0)
		before := l.Cache().Get("a")

		l.Tell(&cri.ContainerEvent{Type: cri.EventStopped, ContainerID: "ca", CreatedAt: time.Now().UnixNano(), Received: time.Now()})
		synctest.Wait()
		if l.want("without a status", names(drain(l.Loop))); l.Snapshot().Trust.NoStatus != 1 {
			t.Errorf("%+v", l.Snapshot().Trust)
		}

		l.want("a backlog", l.tellAt(time.Now().Add(-time.Hour), cri.EventStopped, "ca", false, nil, status("ca", cri.StateExited, 1)))
		if s := l.Snapshot(); s.Trust.Known != 1 || l.Cache().Get("a") != before {
			t.Errorf("%+v, %+v", s.Trust, l.Cache().Get("a"))
		}
		l.counts("a backlog", 1, 0, 1, 0)

		l.want("stopped", l.tell(cri.EventStopped, "x", true, ip, ca, status("x", cri.StateExited, 2)), "ContainerDied x 2")
		l.want("started after that", l.tellAt(time.Now().Add(-time.Millisecond), cri.EventStarted, "x", true, ip, ca, status("x", cri.StateRunning, 0)))
		if s := l.Snapshot(); s.Trust.OutOfOrder != 1 {
			t.Errorf("%+v", s.Trust)
		}
		l.counts("out of order", 1, 0, 1, 1)
		l.want("stopped again", l.tell(cri.EventStopped, "x", true, ip, ca, status("x", cri.StateExited, 2)))
	})
}

// TestEventsDuringAHang: a list that hangs holds up no event and no tick; what
// was told meanwhile is neither told again nor taken back by that list.
func TestEventsDuringAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newEvented(t)
		ip := []string{"10.0.0.1"}
		l.rt.set(func(s *script) { s.delay[cri.OpListContainers] = time.Minute })
		done := l.Relist()
		time.Sleep(30 * time.Second)
		l.want("stopped during a list", l.tell(cri.EventStopped, "ca", true, ip, status("ca", cri.StateExited, 5)), "ContainerDied ca 5")
		if s := l.Snapshot(); s.Phase != ListingContainers {
			t.Fatalf("phase %d: this test tests nothing", s.Phase)
		}
		if age := time.Since(l.Cache().Observed()); age > CacheTick {
			t.Errorf("the cache's clock is %s behind", age)
		}
		<-done // the list says that ca runs: it is from before the event, or after
		synctest.Wait()
		l.want("the list", names(drain(l.Loop)))
		l.rt.set(func(s *script) {
			clear(s.delay)
			s.containers = []*cri.Container{container("a", "ca", cri.StateExited)}
		})
		<-l.Relist()
		synctest.Wait()
		l.want("the next list", names(drain(l.Loop)))
		// A list that speaks against what was told is believed, later.
		l.want("started", l.tell(cri.EventStarted, "y", true, ip, status("ca", cri.StateExited, 5), status("y", cri.StateRunning, 0)), "ContainerStarted y")
		<-l.Relist()
		synctest.Wait()
		l.want("a list without it", names(drain(l.Loop)), "ContainerDied y", "ContainerRemoved y")
	})
}

// TestMissedChanges: what a relist finds and no event tells is delivered by the
// relist and counted; what is told late in time is not.
func TestMissedChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newEvented(t)
		ip := []string{"10.0.0.1"}
		<-l.Relist() // shows where things stand
		l.rt.set(func(s *script) {
			s.containers = []*cri.Container{container("a", "ca", cri.StateExited), container("a", "new", cri.StateRunning)}
		})
		made := time.Now()
		<-l.Relist()
		synctest.Wait()
		l.want("the relist", names(drain(l.Loop)), "ContainerDied ca 0", "ContainerStarted new")
		time.Sleep(time.Second)
		l.want("told late", l.tellAt(made, cri.EventStarted, "new", true, ip, status("ca", cri.StateExited, 0), status("new", cri.StateRunning, 0)))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := l.Snapshot(); s.Trust.Missed != 1 {
			t.Errorf("%d changes missed, want the one that no event told", s.Trust.Missed)
		}
		time.Sleep(2 * EventedPeriod)
		synctest.Wait()
		if s := l.Snapshot(); s.Trust.Missed != 1 {
			t.Errorf("%d changes missed: one is counted again", s.Trust.Missed)
		}
	})
}

// TestListenedWhenDue: the stream begins to hold at the moment when a relist is due.
// What is missed from then on is counted.
func TestListenedWhenDue(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			rt := newScript(t)
			l := New(rt, Config{Period: DefaultPeriod, InspectConcurrency: 4, InspectTimeout: 10 * time.Second, Mode: Evented}, nil)
			run(t, l)
			time.Sleep(2 * DefaultPeriod)
			l.Listening(true)
			l.UseEvents(true)
			l.CatchUp()
			time.Sleep(5 * time.Second)
			rt.set(func(s *script) { s.sandboxes = []*cri.Sandbox{sandbox("a", "sa", true)} })
			l.CatchUp()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if s := l.Snapshot(); s.Trust.Missed != 1 {
				t.Fatalf("%d changes missed, want 1", s.Trust.Missed)
			}
		})
	}
}

// TestAskedAsARelistBegins: what is asked when the loop has looked at the requests,
// and its relist has yet to begin, is done after that relist, all of it.
func TestAskedAsARelistBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(newScript(t), Config{Period: DefaultPeriod, InspectConcurrency: 4, InspectTimeout: 10 * time.Second, Mode: Evented}, nil)
		l.handleRequests()
		l.Listening(true)
		l.UseEvents(true)
		l.CatchUp()
		l.relist(t.Context())
		if now, early := l.handleRequests(); !now || early {
			t.Errorf("a relist now: %v, early: %v; want one now that a kubelet would not make", now, early)
		}
		if !l.now.Evented || l.trust.listening.IsZero() {
			t.Errorf("evented: %v, listening since %v", l.now.Evented, l.trust.listening)
		}
	})
}

// TestFlood: more events than fit cost memory only up to a limit, are counted,
// and a relist is made in their place, no more often than every period.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newEvented(t)
		l.rt.set(func(s *script) { s.delay[cri.OpListPodSandbox] = time.Millisecond })
		before := l.Snapshot().Attempts
		start := time.Now()
		for time.Since(start) < 10*time.Second {
			for range 3000 {
				l.Tell(&cri.ContainerEvent{ContainerID: "x", Bytes: 1 << 20, CreatedAt: time.Now().UnixNano(), Received: time.Now()})
			}
			if q := l.queued.Load(); q > maxQueued {
				t.Fatalf("%d bytes wait", q)
			}
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		s := l.Snapshot()
		if n := s.Attempts - before; n < 5 || n > 12 {
			t.Errorf("%d relists in 10 s of flood", n)
		}
		if s.Trust.Dropped == 0 || l.queued.Load() != 0 {
			t.Errorf("%d dropped, %d bytes said to wait", s.Trust.Dropped, l.queued.Load())
		}
	})
}

// TestFallingBack: without events the next relist is at once, and the period the
// loop's own.
func TestFallingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newEvented(t)
		time.Sleep(100 * time.Second)
		start := time.Now()
		l.UseEvents(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		s := l.Snapshot()
		if s.Evented || s.Period != DefaultPeriod || time.Since(s.LastSeen) > time.Second {
			t.Errorf("%+v", *s)
		}
		l.rt.set(func(r *script) {
			if first := slices.IndexFunc(r.starts, func(at time.Time) bool { return !at.Before(start) }); !r.starts[first].Equal(start) {
				t.Errorf("the first relist came %s later", r.starts[first].Sub(start))
			}
		})
	})
}
