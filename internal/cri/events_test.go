package cri

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// stream subscribes in a bubble and returns how that ended, after what time, and
// what came.
func stream(t *testing.T, during func(*fakeruntime.Runtime)) (end StreamEnd, took time.Duration, got []string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rt := fakeruntime.New(fakeruntime.Options{Seed: 1})
		rt.Start()
		defer rt.Stop()
		c, _ := clientOf(t, rt, Options{})
		go func() {
			time.Sleep(time.Second)
			during(rt)
		}()
		start := time.Now()
		end, err = c.ContainerEvents(t.Context(), 10*time.Second, func(kind EventType, uid string) { got = append(got, kind.String()+" "+uid) })
		took = time.Since(start)
		synctest.Wait()
		check.Equal(t, rt.Subscribers(), 0, "subscribers are left")
	})
	return end, took, got, err
}

// TestLeaseOver: the runtime ends the stream at its deadline, and says what
// happened until then.
func TestLeaseOver(t *testing.T) {
	var pod fakeruntime.Pod
	end, took, got, err := stream(t, func(rt *fakeruntime.Runtime) {
		pod = rt.AddPod(fakeruntime.PodSpec{Name: "p", Namespace: "ns", Containers: []string{"c"}})
		rt.ExitContainer(pod.ContainerIDs[0], 7, "Error")
	})
	if end != StreamLeaseOver || err != nil || took < 10*time.Second || took > 11*time.Second {
		t.Errorf("%d, %v after %s", end, err, took)
	}
	if last := got[len(got)-1]; last != EventType(2).String()+" "+pod.UID {
		t.Error(last)
	}
}

// TestStreamEnds: every other way in which a stream ends.
func TestStreamEnds(t *testing.T) {
	for name, c := range map[string]struct {
		during func(*fakeruntime.Runtime)
		end    StreamEnd
		code   string
		took   time.Duration
	}{
		"closed": {func(rt *fakeruntime.Runtime) { rt.EndEvents() }, StreamClosed, "", time.Second},
		"killed": {func(rt *fakeruntime.Runtime) { rt.Kill() }, StreamFailed, CodeUnavailable, time.Second},
		"frozen": {func(rt *fakeruntime.Runtime) { _ = rt.SetFailpoints("socket=freeze") }, StreamNotEnded, "", 20 * time.Second},
	} {
		end, took, _, err := stream(t, c.during)
		var e *facts.CallError
		if errors.As(err, &e) != (c.code != "") || e != nil && e.Code != c.code || end != c.end || took != c.took {
			t.Errorf("%s: %d, %v after %s", name, end, err, took)
		}
	}
}

func TestEventsUnimplemented(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	must.Do(t, rt.SetFailpoints("GetContainerEvents=error(Unimplemented: unknown method)"))
	c, _ := clientOf(t, rt, Options{})
	end, err := c.ContainerEvents(t.Context(), time.Minute, func(EventType, string) {})
	var e *facts.CallError
	if !errors.As(err, &e) || e.Code != CodeUnimplemented || e.Operation != OpContainerEvents || end != StreamFailed {
		t.Errorf("%d, %v", end, err)
	}
}

// TestPodLists: one pod's entries, and no trace in the lists' history or in what
// they know.
func TestPodLists(t *testing.T) {
	rt := serve(t, fakeruntime.Options{Seed: 1})
	pods := rt.FillPods(5, 2)
	c, seen := clientOf(t, rt, Options{})
	if _, err := c.ListContainers(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, calls := c.History(OpListContainers), len(seen.all())
	sandboxes, containers, err := c.PodLists(t.Context(), pods[2].UID)
	if err != nil || len(sandboxes) != 1 || len(containers) != 2 || sandboxes[0].PodUID != pods[2].UID || containers[1].PodUID != pods[2].UID {
		t.Errorf("%v, %v, %v", sandboxes, containers, err)
	}
	check.Equal(t, c.History(OpListContainers), before, "the history of lists")
	check.Equal(t, len(seen.all())-calls, 2, "calls were counted")
	if again, err := c.ListContainers(t.Context()); err != nil || len(again) != 10 {
		t.Errorf("the next list: %d entries, %v", len(again), err)
	}
}
