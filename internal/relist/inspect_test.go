package relist

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/cri"
)

// pods makes a script of pods with one sandbox and one running container each.
func pods(t testing.TB, n int) *script {
	rt := newScript(t)
	for i := range n {
		uid := fmt.Sprintf("u%04d", i)
		rt.sandboxes = append(rt.sandboxes, sandbox(uid, "s-"+uid, true))
		rt.containers = append(rt.containers, container(uid, "c-"+uid, cri.StateRunning))
	}
	return rt
}

// TestInspectionsAtOnce never exceed the limit, and reach it.
func TestInspectionsAtOnce(t *testing.T) {
	for _, tt := range []struct{ pods, limit, most int }{{50, 16, 16}, {50, 1, 1}, {3, 16, 3}, {50, 0, 1}} {
		t.Run(fmt.Sprintf("%d of %d", tt.limit, tt.pods), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := pods(t, tt.pods)
				rt.delay[cri.OpPodSandboxStatus], rt.delay[cri.OpContainerStatus] = time.Second, time.Second
				l := New(rt, Config{InspectConcurrency: tt.limit, InspectTimeout: time.Minute}, nil)
				l.relist(t.Context())
				if rt.most != tt.most {
					t.Errorf("%d inspections at once, want %d", rt.most, tt.most)
				}
				for _, op := range []cri.Operation{cri.OpPodSandboxStatus, cri.OpContainerStatus} {
					if n := rt.started[op]; n != tt.pods {
						t.Errorf("%d calls of %s, want one for each of %d", n, op, tt.pods)
					}
				}
			})
		})
	}
}

// TestBurst: 200 inspections of 1 s take 13 s, and would take a kubelet 200 s.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, seen := pods(t, 200), newWatcher()
		rt.sandboxes = nil
		rt.delay[cri.OpContainerStatus] = time.Second
		rt.delay[cri.OpListContainers] = 3 * time.Second
		l := New(rt, Config{InspectConcurrency: 16, InspectTimeout: 10 * time.Second}, seen)
		start := time.Now()
		l.relist(t.Context())
		// They begin 10 ms apart, as long as nothing is known of the runtime.
		if d := time.Since(start); d.Truncate(100*time.Millisecond) != 16*time.Second {
			t.Errorf("lists of 3s and 200 inspections of 1s took %v, want 16s", d)
		}
		last := l.Snapshot().Last
		if last.Serial != 203*time.Second || !slices.Equal(seen.serial, []time.Duration{last.Serial}) {
			t.Errorf("serially %v, told %v, want 203s", last.Serial, seen.serial)
		}
		if last.Changed != 200 || last.Failed != 0 || len(last.Inspections) != 200 || seen.inspected[true] != 200 || seen.inspected[false] != 0 {
			t.Errorf("%d changed, %d failed, %d inspections, told %v", last.Changed, last.Failed, len(last.Inspections), seen.inspected)
		}
		if !last.Listed.Equal(start.Add(3*time.Second)) || !last.End.Equal(time.Now()) {
			t.Errorf("listed after %v, ended after %v", last.Listed.Sub(start), last.End.Sub(start))
		}
		if n := len(drain(l)); n != 200 || l.Cache().Len() != 200 {
			t.Errorf("%d events, %d pods in the cache", n, l.Cache().Len())
		}
	})
}

// TestInspectTimeout: one pod's inspection is cut by its deadline, over all its
// calls, while the others succeed; its record stays and it is inspected again.
func TestInspectTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, seen := pods(t, 3), newWatcher()
		// 4 s for the sandbox, and 6 s of the 7 that the container would take.
		rt.delay[cri.OpPodSandboxStatus], rt.delay[cri.OpContainerStatus] = 4*time.Second, 7*time.Second
		rt.containers = rt.containers[:1]
		l := New(rt, Config{InspectConcurrency: 16, InspectTimeout: 10 * time.Second}, seen)
		start := time.Now()
		l.relist(t.Context())
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("the relist took %v, want 10s", d)
		}
		s := l.Snapshot()
		if s.Last.Err != nil || s.Last.Changed != 3 || s.Last.Failed != 1 || s.Reinspect != 1 || s.Last.Serial != 18*time.Second {
			t.Errorf("%+v; serially %v", *s.Last, s.Last.Serial)
		}
		if diff := cmp.Diff(map[bool]int{true: 2, false: 1}, seen.inspected); diff != "" {
			t.Errorf("inspections told of (-want +got):\n%s", diff)
		}
		for _, in := range s.Last.Inspections {
			got := in.Result()
			got.Start, got.End = got.Start.Truncate(100*time.Millisecond), got.End.Truncate(100*time.Millisecond)
			want := InspectionResult{Start: start, End: start.Add(4 * time.Second), Operation: cri.OpPodSandboxStatus, LastCall: 4 * time.Second}
			if in.UID == "u0000" {
				want = InspectionResult{Start: start, End: start.Add(10 * time.Second), Operation: cri.OpContainerStatus, LastCall: 6 * time.Second, Cut: true, Err: got.Err}
				if got.Err == nil || got.Err.Code != cri.CodeDeadlineExceeded {
					t.Errorf("%s: %+v", in.UID, got.Err)
				}
			}
			if diff := cmp.Diff(want, *got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", in.UID, diff)
			}
			if _, _, _, ok := in.Progress(); ok {
				t.Errorf("%s has ended and is under way", in.UID)
			}
		}
		if events := drain(l); len(events) != 2 || slices.ContainsFunc(events, func(e Event) bool { return e.PodUID == "u0000" }) {
			t.Errorf("events %+v", events)
		}
		if st := l.Cache().Get("u0000"); st == nil || st.Err == nil || !st.At.Equal(start) {
			t.Errorf("the cache holds %+v", st)
		}

		// Again and again, counted, with the same events in the end.
		for i := 1; i <= 3; i++ {
			l.relist(t.Context())
			if in := l.Snapshot().Last.Inspections; len(in) != 1 || in[0].UID != "u0000" || in[0].Failures != i {
				t.Fatalf("relist %d: inspections %+v", i, in)
			}
		}
		rt.delay = map[cri.Operation]time.Duration{}
		l.relist(t.Context())
		var got []string
		for _, e := range drain(l) {
			got = append(got, string(e.Type)+" "+e.ID)
		}
		if diff := cmp.Diff([]string{"ContainerStarted c-u0000", "ContainerStarted s-u0000"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if s := l.Snapshot(); s.Reinspect != 0 || s.Last.Failed != 0 {
			t.Errorf("%+v", *s)
		}
		l.relist(t.Context())
		if in := l.Snapshot().Last.Inspections; len(in) > 0 {
			t.Errorf("inspected again without a reason: %+v", in)
		}
	})
}

// TestTheRuntimesOwnDeadline: an error that came before plegd's deadline is not
// plegd's cut, whatever its code.
func TestTheRuntimesOwnDeadline(t *testing.T) {
	rt := pods(t, 1)
	rt.fails[ask{cri.OpPodSandboxStatus, "s-u0000"}] = failed(cri.OpPodSandboxStatus, cri.CodeDeadlineExceeded)
	l := New(rt, Config{InspectTimeout: time.Hour}, nil)
	l.relist(t.Context())
	r := l.Snapshot().Last.Inspections[0].Result()
	if r.Cut || r.Err == nil || r.Operation != cri.OpPodSandboxStatus {
		t.Errorf("%+v", *r)
	}
	if want := []ask{{cri.OpPodSandboxStatus, "s-u0000"}}; !slices.Equal(rt.asked, want) {
		t.Errorf("asked %v, want %v and nothing after its failure", rt.asked, want)
	}
}

// TestStoppingIsNoCut: an inspection that plegd's own end ends says nothing
// about the runtime.
func TestStoppingIsNoCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, seen := pods(t, 1), newWatcher()
		rt.hang[cri.OpContainerStatus] = true
		l := New(rt, Config{InspectTimeout: time.Hour}, seen)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		seenUnderWay := make(chan []*Inspection, 1)
		time.AfterFunc(2*time.Second, func() { seenUnderWay <- l.Snapshot().Inspections })
		l.relist(ctx)
		under := <-seenUnderWay
		if len(under) != 1 {
			t.Fatalf("%d inspections were under way", len(under))
		}
		r := under[0].Result()
		if r == nil || r.Cut || r.Err == nil || r.Err.Code != cri.CodeCanceled {
			t.Errorf("%+v", r)
		}
		if len(seen.inspected) > 0 || len(l.reinspect) > 0 || l.cache.Len() > 0 {
			t.Errorf("told of %v, %d to be reinspected, %d in the cache", seen.inspected, len(l.reinspect), l.cache.Len())
		}
	})
}

// TestRemovedBeforeTheInspection: NotFound is no failure, of whichever call.
func TestRemovedBeforeTheInspection(t *testing.T) {
	rt, seen := pods(t, 2), newWatcher()
	rt.containers = append(rt.containers, container("u0000", "c2", cri.StateExited))
	rt.exit["c2"] = 9
	for _, a := range []ask{{cri.OpPodSandboxStatus, "s-u0000"}, {cri.OpContainerStatus, "c-u0000"}, {cri.OpPodSandboxStatus, "s-u0001"}, {cri.OpContainerStatus, "c-u0001"}} {
		rt.fails[a] = failed(a.op, cri.CodeNotFound)
	}
	l := New(rt, Config{InspectTimeout: time.Hour}, seen)
	l.relist(t.Context())
	s := l.Snapshot()
	if s.Last.Failed != 0 || s.Reinspect != 0 || seen.inspected[true] != 2 || len(drain(l)) != 5 {
		t.Errorf("%+v, told %v", *s.Last, seen.inspected)
	}
	if st := l.Cache().Get("u0000"); st.Err != nil || len(st.Sandboxes) != 0 || len(st.Containers) != 1 || st.Containers[0].ExitCode != 9 {
		t.Errorf("the cache holds %+v", st)
	}
	if st := l.Cache().Get("u0001"); st == nil || st.Err != nil || len(st.Containers) != 0 || st.Name != "pod-u0001" || st.Namespace != "ns" {
		t.Errorf("the cache holds %+v", st)
	}
}

// TestReinspection: a pod whose inspection failed, and whose change has undone
// itself meanwhile, is inspected again and comes to a PodSync.
func TestReinspection(t *testing.T) {
	rt, seen := pods(t, 1), newWatcher()
	l := New(rt, Config{InspectTimeout: time.Hour}, seen)
	l.relist(t.Context())
	drain(l)

	running := rt.containers
	rt.containers = []*cri.Container{container("u0000", "c-u0000", cri.StateExited)}
	rt.fails[ask{cri.OpContainerStatus, "c-u0000"}] = failed(cri.OpContainerStatus, cri.CodeUnavailable)
	l.relist(t.Context())
	if events := drain(l); len(events) > 0 {
		t.Errorf("the inspection failed and there are events: %+v", events)
	}
	rt.containers = running
	l.relist(t.Context())
	if s := l.Snapshot(); s.Last.Changed != 0 || s.Last.Failed != 1 || s.Reinspect != 1 {
		t.Errorf("reinspected in vain: %+v", *s.Last)
	}
	// A failed list in between does not forget it.
	rt.listErr[cri.OpListPodSandbox] = failed(cri.OpListPodSandbox, cri.CodeUnavailable)
	l.relist(t.Context())
	if s := l.Snapshot(); s.Reinspect != 1 {
		t.Errorf("after a failed list %d pods wait for reinspection", s.Reinspect)
	}
	rt.listErr = map[cri.Operation]error{}
	rt.fails = map[ask]error{}
	l.relist(t.Context())
	want := []Event{{Type: PodSync, PodUID: "u0000", PodName: "pod-u0000", PodNamespace: "ns"}}
	if diff := cmp.Diff(want, drain(l)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := l.Snapshot(); s.Reinspect != 0 || len(s.Last.Inspections) != 1 || seen.events[PodSync] != 1 {
		t.Errorf("%+v, told %v", *s, seen.events)
	}
	l.relist(t.Context())
	if n := len(drain(l)); n > 0 {
		t.Errorf("%d more events", n)
	}
}

// TestRetainedRecord: while the inspection fails, changes add up to one
// difference from what was last delivered.
func TestRetainedRecord(t *testing.T) {
	rt := pods(t, 1)
	l := New(rt, Config{InspectTimeout: time.Hour}, nil)
	l.relist(t.Context())
	drain(l)
	rt.fails[ask{cri.OpPodSandboxStatus, "s-u0000"}] = failed(cri.OpPodSandboxStatus, cri.CodeUnavailable)
	for _, list := range [][]*cri.Container{
		{container("u0000", "c-u0000", cri.StateExited), container("u0000", "brief", cri.StateRunning)},
		{container("u0000", "late", cri.StateCreated)},
		{container("u0000", "late", cri.StateRunning)},
	} {
		rt.containers = list
		l.relist(t.Context())
		if events := drain(l); len(events) > 0 {
			t.Fatalf("events %+v", events)
		}
	}
	rt.fails = map[ask]error{}
	l.relist(t.Context())
	var got []string
	for _, e := range drain(l) {
		got = append(got, string(e.Type)+" "+e.ID)
	}
	want := []string{"ContainerDied c-u0000", "ContainerRemoved c-u0000", "ContainerStarted late"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := len(l.records.pods["u0000"].records); n != 2 {
		t.Errorf("%d records are kept of a sandbox and a container", n)
	}
}

// TestGoneWhileItFails: a pod that goes while its inspection fails needs none.
func TestGoneWhileItFails(t *testing.T) {
	rt := pods(t, 1)
	l := New(rt, Config{InspectTimeout: time.Hour}, nil)
	l.relist(t.Context())
	drain(l)
	rt.sandboxes = nil
	rt.fails[ask{cri.OpContainerStatus, "c-u0000"}] = failed(cri.OpContainerStatus, cri.CodeUnavailable)
	l.relist(t.Context())
	rt.asked, rt.containers = nil, nil
	l.relist(t.Context())
	var got []string
	for _, e := range drain(l) {
		got = append(got, string(e.Type)+" "+e.ID)
	}
	slices.Sort(got)
	want := []string{"ContainerDied c-u0000", "ContainerDied s-u0000", "ContainerRemoved c-u0000", "ContainerRemoved s-u0000"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(rt.asked) > 0 || l.Snapshot().Reinspect != 0 || l.cache.Len() > 0 || len(l.records.pods) > 0 {
		t.Errorf("asked %v; %d to be reinspected, %d in the cache, %d pods", rt.asked, l.Snapshot().Reinspect, l.cache.Len(), len(l.records.pods))
	}
}

// TestAddressesSurviveTheTeardown: the runtime names none any more once the
// sandbox has stopped; a pod that is up and has none has none.
func TestAddressesSurviveTheTeardown(t *testing.T) {
	rt := pods(t, 1)
	ips := []string{"10.0.0.1", "fd00::1"}
	rt.ips["s-u0000"] = ips
	l := New(rt, Config{InspectTimeout: time.Hour}, nil)
	check := func(step string, want []string) {
		t.Helper()
		l.relist(t.Context())
		if st := l.Cache().Get("u0000"); st == nil || !slices.Equal(st.IPs, want) {
			t.Errorf("%s: the cache holds %+v, want addresses %v", step, st, want)
		}
	}
	check("running", ips)
	rt.ips = map[string][]string{}
	rt.sandboxes = []*cri.Sandbox{sandbox("u0000", "s-u0000", false)}
	rt.containers = []*cri.Container{container("u0000", "c-u0000", cri.StateExited)}
	check("stopped", ips)
	rt.sandboxes = nil
	check("its sandbox removed", ips)
	rt.sandboxes = []*cri.Sandbox{sandbox("u0000", "s2", true)}
	check("a new sandbox without an address yet", nil)
	rt.ips["s2"] = []string{"10.0.0.2"}
	rt.containers = []*cri.Container{container("u0000", "c3", cri.StateRunning)}
	check("a new address", []string{"10.0.0.2"})
}

// TestUncached: nobody reads the statuses, and none is kept; events and exit codes
// are the same.
func TestUncached(t *testing.T) {
	for _, uncached := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rt := pods(t, 20)
			l := New(rt, Config{InspectTimeout: 10 * time.Second, Uncached: uncached}, nil)
			l.relist(t.Context())
			want := 20
			if uncached {
				want = 0
			}
			if n := len(drain(l)); n != 40 || l.Cache().Len() != want {
				t.Errorf("uncached %t: %d events, want 40; %d pods in the cache, want %d", uncached, n, l.Cache().Len(), want)
			}
			if s := l.Snapshot(); s.Reinspect != 0 || s.Last.Failed != 0 {
				t.Errorf("uncached %t: %+v", uncached, s)
			}
		})
	}
}
