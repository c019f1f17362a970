package relist

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
)

// TestHint: a hint relists its pod between two relists, and the next relist finds
// nothing new there. A burst of hints is bounded.
func TestHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newScript()
		rt.containers = []*cri.Entry{container("a", "ca", cri.StateRunning), container("b", "cb", cri.StateRunning)}
		l := New(rt, time.Second, newWatcher())
		run(t, l)
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		drain(l)
		before := l.Snapshot().Attempts
		rt.set(func(s *script) {
			s.containers = []*cri.Entry{container("a", "ca", cri.StateExited), container("b", "cb", cri.StateExited)}
		})
		l.Hint("a")
		synctest.Wait()
		if e := drain(l); len(e) != 1 || e[0].ID != "ca" || l.Snapshot().Attempts != before {
			t.Errorf("events %+v", e)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if e := drain(l); len(e) != 1 || e[0].ID != "cb" {
			t.Errorf("the next relist: events %+v", e)
		}
		looks := len(rt.looks)
		for i := range 500 {
			l.Hint(fmt.Sprint(i))
			synctest.Wait()
		}
		if n := len(rt.looks) - looks; n == 0 || n > maxHints {
			t.Errorf("%d pods were relisted in a burst", n)
		}
	})
}

// slowScript is a script whose lists take a second each.
type slowScript struct{ *script }

func (s slowScript) ListPodSandbox(ctx context.Context) ([]*cri.Entry, error) {
	time.Sleep(time.Second)
	return s.script.ListPodSandbox(ctx)
}

func (s slowScript) ListContainers(ctx context.Context) ([]*cri.Entry, error) {
	time.Sleep(time.Second)
	return s.script.ListContainers(ctx)
}

// TestThrottled: the time for which plegd's own CPU quota holds it is none of the runtime's, and a quota that
// held it before, or several CPUs at once, takes nothing else away.
func TestThrottled(t *testing.T) {
	for _, tt := range []struct {
		name  string
		share float64 // of all time that passes, over all CPUs
		lists time.Duration
	}{
		{"not throttled", 0, 2 * time.Second},
		{"for nine tenths of the time", 0.9, 200 * time.Millisecond},
		{"on two CPUs", 1.8, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				l := New(slowScript{newScript()}, time.Second, newWatcher())
				l.Throttled = func() time.Duration {
					return time.Hour + time.Duration(tt.share*float64(time.Since(begun)))
				}
				run(t, l)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				s := l.Snapshot()
				check.Equal(t, s.Lists[len(s.Lists)-1].Round(time.Millisecond), tt.lists, "both lists")
				check.Equal(t, s.Last.Serial.Round(time.Millisecond), tt.lists, "the relist")
			})
		})
	}
}

// hungScript is a script whose inspections, or else lists, are not answered once a pod has changed.
type hungScript struct {
	*script
	inspections bool
}

func (s hungScript) ListContainers(ctx context.Context) ([]*cri.Entry, error) {
	out, err := s.script.ListContainers(ctx)
	if !s.inspections && len(out) > 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return out, err
}

func (s hungScript) StatusOf(ctx context.Context, _ *cri.Entry) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestThrottledInFlight: of a call under way, too, the time for which plegd's own CPU quota holds it is none of the
// runtime's; a tenth of it remains, so that a hang is found in the end.
func TestThrottledInFlight(t *testing.T) {
	for _, inspections := range []bool{false, true} {
		for _, tt := range []struct{ share, waited float64 }{{0, 1}, {0.5, 0.5}, {1.8, 0.1}} {
			synctest.Test(t, func(t *testing.T) {
				rt := hungScript{newScript(), inspections}
				begun := time.Now()
				l := New(rt, time.Second, newWatcher())
				l.Throttled = func() time.Duration {
					return time.Hour + time.Duration(tt.share*float64(time.Since(begun)))
				}
				run(t, l)
				time.Sleep(2500 * time.Millisecond)
				rt.set(func(s *script) { s.containers = []*cri.Entry{container("a", "ca", cri.StateRunning)} })
				time.Sleep(20 * time.Second)
				synctest.Wait()
				list, _ := l.Snapshot().Facts(time.Now(), time.Minute, l.Throttled)
				waited := list.InFlight.Waited(time.Now())
				passed := time.Since(list.InFlight.PhaseStart)
				if inspections {
					waited = list.Inspecting[0].Waited(time.Now())
					passed = time.Since(list.Inspecting[0].CallStart)
				}
				check.Equal(t, waited.Round(time.Millisecond), time.Duration(tt.waited*float64(passed)).Round(time.Millisecond),
					"inspections %t, throttled for %g of the time, in flight for %s", inspections, tt.share, passed)
			})
		}
	}
}

// TestRelyOnEvents: relists are 300 s apart while the loop relies on events, lists go
// on beside them for diagnosis, and a relist follows at once when that ends.
func TestRelyOnEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(newScript(), time.Second, newWatcher())
		begin := time.Now()
		run(t, l)
		time.Sleep(1500 * time.Millisecond)
		l.RelyOnEvents(true)
		time.Sleep(200 * time.Second)
		synctest.Wait()
		s := l.Snapshot()
		if s.LastSeen.Sub(begin) != 1500*time.Millisecond || time.Since(s.Listed) > time.Second || s.Period != EventedPeriod {
			t.Errorf("last seen %s, listed %s ago, period %s", s.LastSeen.Sub(begin), time.Since(s.Listed), s.Period)
		}
		l.RelyOnEvents(false)
		synctest.Wait()
		if s := l.Snapshot(); time.Since(s.LastSeen) > 0 || s.Period != time.Second {
			t.Errorf("last seen %s ago, period %s", time.Since(s.LastSeen), s.Period)
		}
	})
}

// TestHintUnanswered: a runtime that does not answer a hint's list delays the next relist by
// one timeout, however many hints there are, and the list is shown as under way meanwhile.
func TestHintUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newScript()
		l := New(rt, 5*time.Second, newWatcher())
		run(t, l)
		time.Sleep(time.Second)
		synctest.Wait()
		rt.set(func(s *script) { s.hangs = true })
		for i := range maxHints {
			l.Hint(fmt.Sprint(i))
		}
		synctest.Wait()
		time.Sleep(showBeside)
		list, _ := l.Snapshot().Facts(time.Now(), time.Minute, l.Throttled)
		if list.InFlight == nil || time.Since(list.InFlight.PhaseStart) != showBeside {
			t.Errorf("the list of a hint is not shown: %+v", list.InFlight)
		}
		time.Sleep(hintTimeout)
		synctest.Wait()
		rt.set(func(s *script) {
			if len(s.looks) > 2 {
				t.Errorf("%d pods were listed after the first one was not answered", len(s.looks)-1)
			}
		})
		if list, _ := l.Snapshot().Facts(time.Now(), time.Minute, l.Throttled); list.InFlight != nil {
			t.Errorf("a list is shown that has ended: %+v", list.InFlight)
		}
	})
}

// TestManyContainersOfOnePod: items of a pod are found by an index where there are many, the
// first of two with one id counts, and a change among them is found.
func TestManyContainersOfOnePod(t *testing.T) {
	for _, n := range []int{indexFrom - 1, indexFrom, 40_000} {
		var containers []*cri.Entry
		for i := range n {
			containers = append(containers, container("a", fmt.Sprint(i), cri.StateRunning))
		}
		containers = append(containers, container("a", "0", cri.StateExited))
		pod := group(nil, containers).pods["a"]
		if len(pod.items) != n || pod.state("0") != cri.StateRunning {
			t.Fatalf("%d containers: %d items, the first one %v", n, len(pod.items), pod.state("0"))
		}
		if indexed := pod.index != nil; indexed != (n >= indexFrom) || indexed && len(pod.index) != n {
			t.Errorf("%d containers: an index of %d", n, len(pod.index))
		}
		ended := container("a", "7", cri.StateExited)
		containers[7] = ended
		events := (&record{old: pod, cur: group(nil, containers).pods["a"]}).events()
		if len(events) != 1 || events[0].ID != "7" || events[0].Type != ContainerDied {
			t.Errorf("%d containers: events %+v", n, events)
		}
	}
}

// TestEventsOfOnePod: containers before sandboxes.
func TestEventsOfOnePod(t *testing.T) {
	rt := newScript()
	l := New(rt, time.Second, newWatcher())
	rt.sandboxes = []*cri.Entry{sandbox("u", "s", cri.StateRunning)}
	rt.containers = []*cri.Entry{container("u", "c1", cri.StateRunning), container("u", "c2", cri.StateExited)}
	l.relist(t.Context())
	var got []string
	for _, e := range drain(l) {
		got = append(got, fmt.Sprintf("%s %s %s %t", e.Type, e.ID, e.Name, e.Sandbox))
	}
	want := []string{"ContainerStarted c1 name-c1 false", "ContainerDied c2 name-c2 false", "ContainerStarted s  true"}
	check.Same(t, got, want, "events")
}

// TestFailuresInARow: a pod's inspection fails again only while what failed is still listed. Some runtimes answer for
// a container or a sandbox that was removed since its list with another error than NotFound, as cri-dockerd does.
func TestFailuresInARow(t *testing.T) {
	const relists = 3
	for _, tt := range []struct {
		name  string
		entry func(uid, id string, state cri.State) *cri.Entry
		stays bool
		want  int
	}{
		{"a container is removed after each list", container, false, 1},
		{"a sandbox is", sandbox, false, 1},
		{"a container stays", container, true, relists},
		{"a sandbox stays", sandbox, true, relists},
	} {
		rt := newScript()
		l := New(rt, time.Second, newWatcher())
		rt.sandboxes = []*cri.Entry{sandbox("u", "s", cri.StateRunning)}
		for n := range relists {
			id := "first"
			if !tt.stays {
				id = fmt.Sprint("removed ", n)
			}
			failing := tt.entry("u", id, cri.StateExited)
			rt.fails = map[ask]error{{failing.Operation(), id}: failed(failing.Operation(), "Unknown")}
			rt.containers = []*cri.Entry{failing}
			l.relist(t.Context())
		}
		r, _ := l.Snapshot().Facts(time.Now(), time.Minute, l.Throttled)
		check.Equal(t, len(r.Failing), 1, "%s: pods whose inspection fails", tt.name)
		check.Equal(t, r.Failing[0].Failures, tt.want, "%s: failures in a row", tt.name)
	}
}

// panics is a runtime whose calls panic beside the relists.
type panics struct {
	*world
	l *Loop
}

func (p panics) ListContainers(ctx context.Context) ([]*cri.Entry, error) {
	if p.l.Snapshot().Relist.Phase == facts.PhaseInspect {
		panic("a list beside the relists")
	}
	return p.world.ListContainers(ctx)
}

// TestPanicBeside: a panic in a list beside the relists ends neither the daemon nor
// the lists that follow.
func TestPanicBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(3)
		p := &panics{world: w}
		p.l = New(p, time.Second, newWatcher())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.l.Run(ctx) }()
		time.Sleep(5500 * time.Millisecond)
		w.hang("pod001")
		w.set(func() { w.pods["pod001"].state = cri.StateExited })
		time.Sleep(10 * time.Second)
		w.release("pod001")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s := p.l.Snapshot(); time.Since(s.LastSeen) > 2*time.Second || len(p.l.besideToken) > 0 {
			t.Errorf("last seen %s ago, %d lists beside under way", time.Since(s.LastSeen), len(p.l.besideToken))
		}
		cancel()
		check.NoError(t, <-done, "Run")
	})
}
