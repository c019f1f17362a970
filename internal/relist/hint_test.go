package relist

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

// hintScript is a script that also lists one pod.
type hintScript struct {
	*script
	hang  bool
	looks []string
}

func (h *hintScript) PodLists(ctx context.Context, uid string) ([]*cri.Sandbox, []*cri.Container, error) {
	h.set(func(*script) { h.looks = append(h.looks, uid) })
	if h.hang {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var sandboxes []*cri.Sandbox
	for _, s := range h.sandboxes {
		if s.PodUID == uid {
			sandboxes = append(sandboxes, s)
		}
	}
	var containers []*cri.Container
	for _, c := range h.containers {
		if c.PodUID == uid {
			containers = append(containers, c)
		}
	}
	return sandboxes, containers, nil
}

func newHinted(t *testing.T, rt *hintScript) *Loop {
	l := New(rt, Config{Period: DefaultPeriod, InspectConcurrency: 4, InspectTimeout: 10 * time.Second, Mode: Hint}, nil)
	run(t, l)
	l.Listening(true)
	time.Sleep(2500 * time.Millisecond)
	synctest.Wait()
	drain(l)
	return l
}

func hint(l *Loop, kind cri.EventType, uid, id string) []string {
	time.Sleep(time.Millisecond)
	now := time.Now()
	l.Tell(&cri.ContainerEvent{
		Type: kind, ContainerID: id, CreatedAt: now.UnixNano(), Received: now, HasSandbox: true, PodUID: uid, PodName: "pod-" + uid, PodNamespace: "ns",
		Sandbox: &cri.SandboxStatus{ID: "s" + uid, Ready: true, CreatedAt: 1},
	})
	synctest.Wait()
	return names(drain(l))
}

// TestHints: an event makes its pod looked at, and nothing else; what that finds
// is not delivered again by the next relists.
func TestHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &hintScript{script: newScript(t)}
		rt.sandboxes = []*cri.Sandbox{sandbox("a", "sa", true), sandbox("b", "sb", true)}
		rt.containers = []*cri.Container{container("a", "ca", cri.StateRunning), container("b", "cb", cri.StateRunning)}
		rt.exit["ca"] = 3
		l := newHinted(t, rt)

		rt.set(func(s *script) {
			s.containers = []*cri.Container{container("a", "ca", cri.StateExited), container("a", "new", cri.StateRunning), container("b", "cb", cri.StateExited)}
		})
		if got, want := hint(l, cri.EventStopped, "a", "ca"), []string{"ContainerDied ca 3", "ContainerStarted new"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if got := hint(l, cri.EventCreated, "b", "x"); len(got) > 0 || !slices.Equal(rt.looks, []string{"a"}) {
			t.Errorf("a creation: %v; looked at %v", got, rt.looks)
		}
		if got := hint(l, cri.EventStarted, "a", "new"); len(got) > 0 {
			t.Errorf("told again: %v", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got, want := names(drain(l)), []string{"ContainerDied cb 0"}; !slices.Equal(got, want) {
			t.Errorf("the relist found %v, want %v", got, want)
		}
		if s := l.Snapshot(); s.RunningPods != 2 || s.Containers[cri.StateRunning] != 1 || s.Containers[cri.StateExited] != 2 {
			t.Errorf("%+v", *s)
		}

		rt.set(func(s *script) { s.sandboxes, s.containers = s.sandboxes[1:], s.containers[2:] }) // pod a is gone
		want := []string{"ContainerRemoved ca", "ContainerDied new", "ContainerRemoved new", "ContainerDied sa", "ContainerRemoved sa"}
		if got := hint(l, cri.EventDeleted, "a", "sa"); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if l.Cache().Get("a") != nil {
			t.Error("a pod that is gone is in the cache")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := names(drain(l)); len(got) > 0 {
			t.Errorf("the relists after it found %v", got)
		}
		// cb's end and new's are the changes that nothing told.
		if s := l.Snapshot(); len(l.records.pods) != 1 || s.Trust.Missed != 3 {
			t.Errorf("%d pods, %+v", len(l.records.pods), s.Trust)
		}
	})
}

// TestHintsAreBounded: a burst of events makes a few early looks, one that hangs
// is cut, and relists go on at their time.
func TestHintsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &hintScript{script: newScript(t)}
		l := newHinted(t, rt)
		for i := range 500 {
			now := time.Now()
			l.Tell(&cri.ContainerEvent{
				Type: cri.EventStopped, ContainerID: "x", CreatedAt: now.UnixNano(), Received: now, HasSandbox: true,
				PodUID: string(rune('0' + i)), Sandbox: &cri.SandboxStatus{ID: "s"},
			})
		}
		synctest.Wait()
		if n := len(rt.looks); n == 0 || n > hintsPerPeriod {
			t.Errorf("%d early looks for a burst", n)
		}
		before := l.Snapshot().Attempts
		rt.hang = true
		for range 10 {
			time.Sleep(time.Second)
			hint(l, cri.EventStopped, "h", "y")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := l.Snapshot().Attempts - before; n < 5 {
			t.Errorf("%d relists in 11 s of looks that hang", n)
		}
	})
}

// TestHintsOfASlowRuntime: a change that an event tells during a relist is not
// missed because that relist takes longer than an event may be late.
func TestHintsOfASlowRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &hintScript{script: newScript(t)}
		rt.sandboxes = []*cri.Sandbox{sandbox("a", "sa", true)}
		rt.containers = []*cri.Container{container("a", "ca", cri.StateRunning), container("a", "cb", cri.StateRunning)}
		l := newHinted(t, rt)
		rt.set(func(s *script) {
			s.containers = []*cri.Container{container("a", "ca", cri.StateExited), container("a", "cb", cri.StateExited)}
			s.delay[cri.OpPodSandboxStatus] = 5 * time.Second
		})
		time.Sleep(time.Second)
		synctest.Wait()
		if s := l.Snapshot(); s.Phase != Inspecting {
			t.Fatalf("%+v", *s)
		}
		hint(l, cri.EventStopped, "a", "ca")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if s := l.Snapshot(); s.Trust.Missed != 1 {
			t.Errorf("%d changes missed, want cb's, which no event told", s.Trust.Missed)
		}
	})
}
