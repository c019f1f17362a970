package relist

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestWithARuntime runs the loop on the real client and the fake runtime:
// shuffled lists, marshalled again.
func TestWithARuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fakeruntime.New(fakeruntime.Options{Seed: 3})
		rt.Start()
		t.Cleanup(rt.Stop)
		client := cri.New(cri.Options{Path: "/run/fake.sock", Dial: rt.Dialer()})
		t.Cleanup(func() { _ = client.Close() })
		l := New(client, time.Second, newWatcher())

		pods := rt.FillPods(20, 2)
		run(t, l)
		step := func() []string {
			time.Sleep(time.Second)
			synctest.Wait()
			var out []string
			for _, e := range drain(l) {
				out = append(out, string(e.Type)+" "+e.ID)
			}
			slices.Sort(out)
			return out
		}
		check.Equal(t, len(step()), 60, "events of 20 pods")
		if s := l.Snapshot(); s.Pods.Running != 20 || s.Pods.Containers["running"] != 40 {
			t.Errorf("%+v", *s)
		}
		// A quiet node: no events, no inspections.
		inspected := rt.Calls("ContainerStatus").Started
		for range 10 {
			if events := step(); len(events) > 0 {
				t.Errorf("events %v", events)
			}
		}
		check.Equal(t, rt.Calls("ContainerStatus").Started, inspected, "inspections after those of the first relist")

		// Made and removed between two relists: as if it had never been.
		id := rt.AddContainer(pods[0].UID, "brief")
		rt.StartContainer(id)
		rt.ExitContainer(id, 3, "")
		rt.RemoveContainer(id)
		brief := rt.AddPod(fakeruntime.PodSpec{Containers: []string{"a", "b"}})
		rt.RemovePod(brief.UID)
		if events := step(); len(events) > 0 {
			t.Errorf("events of what came and went: %v", events)
		}
		if l.records[brief.UID] != nil || len(l.records[pods[0].UID].cur.items) != 3 {
			t.Error("something is left of what came and went")
		}

		rt.ExitContainer(pods[1].ContainerIDs[0], 42, "")
		time.Sleep(time.Second)
		synctest.Wait()
		events := drain(l)
		if len(events) != 1 || events[0].Type != ContainerDied || events[0].ID != pods[1].ContainerIDs[0] ||
			events[0].PodName != pods[1].Name || events[0].PodNamespace != pods[1].Namespace {
			t.Errorf("events %+v", events)
		}
		for _, p := range pods {
			rt.RemovePod(p.UID)
		}
		if events := step(); len(events) != 2*60-1 { // one had died before
			t.Errorf("%d events of 20 pods' removal, want 119", len(events))
		}
		if len(l.records) > 0 {
			t.Errorf("left of nothing: %d pods", len(l.records))
		}
		if w := rt.WriteCalls(); len(w) > 0 {
			t.Errorf("calls that would have changed the runtime: %v", w)
		}
	})
}

// TestRuntimeRestart: the relist after the runtime's return succeeds, and its
// pods are compared with the earlier ones.
func TestRuntimeRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fakeruntime.New(fakeruntime.Options{})
		rt.Start()
		t.Cleanup(rt.Stop)
		client := cri.New(cri.Options{Path: "/run/fake.sock", Dial: rt.Dialer(), RPCTimeout: time.Second})
		t.Cleanup(func() { _ = client.Close() })
		pods := rt.FillPods(3, 1)
		l := New(client, time.Second, newWatcher())
		begin := time.Now()
		run(t, l)
		synctest.Wait()
		drain(l)
		time.Sleep(500 * time.Millisecond)
		rt.Kill()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if s := l.Snapshot(); s.Failures != 30 || !s.LastSeen.Equal(begin) || s.Pods.Running != 3 || s.Last.Err.Code != cri.CodeUnavailable {
			t.Errorf("away: %+v", *s)
		}
		rt.RemovePod(pods[0].UID)
		must.Do(t, rt.Restart())
		time.Sleep(time.Second)
		synctest.Wait()
		if s := l.Snapshot(); s.Failures != 0 || s.LastSeen.Sub(begin) != 31*time.Second || s.Pods.Running != 2 {
			t.Errorf("back: %+v", *s)
		}
		if events := drain(l); len(events) != 4 {
			t.Errorf("events %+v", events)
		}
	})
}
