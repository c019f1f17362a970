package relist

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

// TestFullChannel: the 1001st event is dropped and counted, and nobody waits.
func TestFullChannel(t *testing.T) {
	rt, seen := newScript(t), newWatcher()
	for i := range 1001 {
		rt.containers = append(rt.containers, container("u", string(rune('a'+i%26))+string(rune('0'+i/26)), cri.StateRunning))
	}
	l := New(rt, Config{InspectTimeout: time.Hour}, seen)
	l.relist(t.Context())
	if cap(l.events) != 1000 || len(l.events) != 1000 || seen.discarded != 1 || seen.events[ContainerStarted] != 1001 {
		t.Errorf("%d of %d events wait, %d were dropped, %d generated", len(l.events), cap(l.events), seen.discarded, seen.events[ContainerStarted])
	}
	// What was dropped does not come again.
	l.relist(t.Context())
	if n := len(drain(l)); n != 1000 || seen.discarded != 1 {
		t.Errorf("%d events were delivered, %d dropped", n, seen.discarded)
	}
	rt.containers = rt.containers[:1]
	l.relist(t.Context())
	if n := len(drain(l)); n != 1000 || seen.discarded != 1001 {
		t.Errorf("%d events were delivered and %d dropped of 2000", n, seen.discarded)
	}
	s := l.Snapshot()
	if s.Discarded != 1001 || s.LastDiscard.Before(s.Last.Start) || s.LastDiscard.After(s.Last.End) {
		t.Errorf("the snapshot says %d, last at %v; the relist was from %v to %v", s.Discarded, s.LastDiscard, s.Last.Start, s.Last.End)
	}
}

// TestContainerChangedIsInternal: it is counted and takes no place in the
// channel.
func TestContainerChangedIsInternal(t *testing.T) {
	rt, seen := newScript(t), newWatcher()
	rt.containers = []*cri.Container{container("u", "c", cri.StateCreated), container("u", "d", cri.StateUnknown)}
	l := New(rt, Config{EventCapacity: 1}, seen)
	l.relist(t.Context())
	if len(l.events) != 0 || seen.events[ContainerChanged] != 2 || seen.discarded != 0 {
		t.Errorf("%d delivered, %d dropped, generated %v", len(l.events), seen.discarded, seen.events)
	}
	if s := l.Snapshot(); s.Last.Changed != 1 || len(s.Last.Inspections) != 1 {
		t.Errorf("%+v", *s.Last)
	}
	// From created to unknown is no change.
	rt.containers = []*cri.Container{container("u", "c", cri.StateUnknown), container("u", "d", cri.StateCreated)}
	l.relist(t.Context())
	if s := l.Snapshot(); s.Last.Changed != 0 || s.Containers != [4]int{1, 0, 0, 1} {
		t.Errorf("%+v", *s.Last)
	}
}

// TestResults delivers every relist that ended, once and in order; of a long
// backlog the oldest make way.
func TestResults(t *testing.T) {
	rt := newScript(t)
	l := New(rt, Config{}, nil)
	l.relist(t.Context())
	rt.listErr[cri.OpListContainers] = failed(cri.OpListContainers, cri.CodeUnavailable)
	l.relist(t.Context())
	for seq := uint64(1); seq <= 2; seq++ {
		if r := <-l.Results(); r.Seq != seq || (r.Err != nil) != (seq == 2) {
			t.Errorf("%+v", *r)
		}
	}
	for range 300 {
		l.relist(t.Context())
	}
	last := uint64(302)
	want := last - resultBacklog
	for len(l.results) > 0 {
		r := <-l.Results()
		if want++; r.Seq != want {
			t.Fatalf("result %d, want %d", r.Seq, want)
		}
		if r.Seq == last && r != l.Snapshot().Last {
			t.Errorf("the last result is not the snapshot's")
		}
	}
	if want != last {
		t.Errorf("the last result is %d, want %d", want, last)
	}
}

// TestSnapshotsNeverWait: they are there while everything hangs, and one that
// was taken does not change.
func TestSnapshotsNeverWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := pods(t, 5)
		l := New(rt, Config{Period: time.Second, InspectTimeout: time.Hour, InspectConcurrency: 2}, nil)
		run(t, l)
		synctest.Wait()
		first := l.Snapshot()
		copied := *first
		rt.set(func(s *script) {
			s.hang[cri.OpContainerStatus] = true
			for i, c := range s.containers {
				exited := *c
				exited.State = cri.StateExited
				s.containers[i] = &exited
			}
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s := l.Snapshot()
		if s.Phase != Inspecting || len(s.Inspections) != 5 || s.Containers != [4]int{0, 0, 5, 0} {
			t.Errorf("%+v", *s)
		}
		underWay := 0
		for _, in := range s.Inspections {
			if _, _, _, ok := in.Progress(); ok {
				underWay++
			}
		}
		if underWay != 2 {
			t.Errorf("%d inspections are under way, want 2", underWay)
		}
		if first.Attempts != copied.Attempts || first.Last != copied.Last || first.Containers != copied.Containers || first.Phase != copied.Phase {
			t.Errorf("an old snapshot became %+v, was %+v", *first, copied)
		}
	})
}

// TestNames of the task and of the event types are fixed: they are metrics and
// logs.
func TestNames(t *testing.T) {
	if s := New(newScript(t), Config{}, nil).String(); s != "relist" {
		t.Errorf("the task is called %q", s)
	}
	want := []EventType{"ContainerStarted", "ContainerDied", "ContainerRemoved", "ContainerChanged", "PodSync"}
	for i, typ := range EventTypes() {
		if typ != want[i] {
			t.Errorf("event type %q, want %q", typ, want[i])
		}
	}
}
