package relist

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/cri"
)

// TestOddLists shows what each odd case comes to, in one relist on an
// empty node: which pods are there, what is counted and what is delivered.
func TestOddLists(t *testing.T) {
	noMetadataS := sandbox("u", "s", true)
	noMetadataS.HasMetadata = false
	noMetadataC := container("u", "c", cri.StateRunning)
	noMetadataC.HasMetadata = false
	noImage := container("u", "c", cri.StateRunning)
	noImage.HasImage = false
	same := container("u", "c", cri.StateRunning)

	for _, tt := range []struct {
		name       string
		sandboxes  []*cri.Sandbox
		containers []*cri.Container
		pods       []string
		running    int // pods
		counted    [cri.NumStates]int
		events     []string
	}{
		{name: "nothing"},
		{name: "sandbox without metadata", sandboxes: []*cri.Sandbox{noMetadataS}},
		{name: "container without metadata", containers: []*cri.Container{noMetadataC}},
		{name: "container without an image", containers: []*cri.Container{noImage}},
		{name: "sandbox with an empty id", sandboxes: []*cri.Sandbox{sandbox("u", "", true)}},
		{name: "container with an empty id", containers: []*cri.Container{container("u", "", cri.StateRunning)}},
		{name: "odd ones beside good ones",
			sandboxes:  []*cri.Sandbox{noMetadataS, sandbox("v", "s1", true)},
			containers: []*cri.Container{noMetadataC, noImage, container("v", "c1", cri.StateExited)},
			pods:       []string{"v"}, running: 1, counted: [4]int{0, 0, 1, 0},
			events: []string{"v ContainerDied c1", "v ContainerStarted s1"}},
		{name: "no pod uid: all such are one pod",
			sandboxes:  []*cri.Sandbox{sandbox("", "s1", true), sandbox("", "s2", false)},
			containers: []*cri.Container{container("", "c1", cri.StateRunning)},
			pods:       []string{""}, running: 1, counted: [4]int{0, 1, 0, 0},
			events: []string{" ContainerDied s2", " ContainerStarted c1", " ContainerStarted s1"}},
		{name: "container whose sandbox is gone", containers: []*cri.Container{container("u", "c", cri.StateExited)},
			pods: []string{"u"}, counted: [4]int{0, 0, 1, 0}, events: []string{"u ContainerDied c"}},
		{name: "sandbox without containers", sandboxes: []*cri.Sandbox{sandbox("u", "s", true)},
			pods: []string{"u"}, running: 1, events: []string{"u ContainerStarted s"}},
		{name: "two sandboxes of one pod, one ready", sandboxes: []*cri.Sandbox{sandbox("u", "s1", false), sandbox("u", "s2", true)},
			pods: []string{"u"}, running: 1, events: []string{"u ContainerDied s1", "u ContainerStarted s2"}},
		{name: "two ready sandboxes of one pod are one running pod", sandboxes: []*cri.Sandbox{sandbox("u", "s1", true), sandbox("u", "s2", true)},
			pods: []string{"u"}, running: 1, events: []string{"u ContainerStarted s1", "u ContainerStarted s2"}},
		{name: "the very entry twice", containers: []*cri.Container{same, same},
			pods: []string{"u"}, counted: [4]int{0, 2, 0, 0}, events: []string{"u ContainerStarted c"}},
		{name: "an id twice in the same state", containers: []*cri.Container{container("u", "c", cri.StateRunning), container("u", "c", cri.StateRunning)},
			pods: []string{"u"}, counted: [4]int{0, 2, 0, 0}, events: []string{"u ContainerStarted c"}},
		{name: "an id twice, the first state counts", containers: []*cri.Container{container("u", "c", cri.StateExited), container("u", "c", cri.StateRunning)},
			pods: []string{"u"}, counted: [4]int{0, 1, 1, 0}, events: []string{"u ContainerDied c"}},
		{name: "a sandbox's id twice, the first state counts", sandboxes: []*cri.Sandbox{sandbox("u", "s", true), sandbox("u", "s", false)},
			pods: []string{"u"}, running: 1, events: []string{"u ContainerStarted s"}},
		{name: "container and sandbox of one id: the container counts", sandboxes: []*cri.Sandbox{sandbox("u", "x", true)}, containers: []*cri.Container{container("u", "x", cri.StateExited)},
			pods: []string{"u"}, running: 1, counted: [4]int{0, 0, 1, 0}, events: []string{"u ContainerDied x"}},
		{name: "an id in two pods is two containers", containers: []*cri.Container{container("u", "c", cri.StateRunning), container("v", "c", cri.StateExited)},
			pods: []string{"u", "v"}, counted: [4]int{0, 1, 1, 0}, events: []string{"u ContainerStarted c", "v ContainerDied c"}},
		{name: "states nobody knows", containers: []*cri.Container{container("u", "c", cri.StateUnknown), container("u", "d", cri.StateCreated)},
			pods: []string{"u"}, counted: [4]int{1, 0, 0, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rt := newScript(t)
			rt.sandboxes, rt.containers = tt.sandboxes, tt.containers
			l := New(rt, Config{}, nil)
			l.relist(t.Context())
			snap := l.Snapshot()
			if pods := slices.Sorted(maps.Keys(l.records.pods)); !slices.Equal(pods, tt.pods) {
				t.Errorf("pods %q, want %q", pods, tt.pods)
			}
			if snap.Last.Err != nil || snap.RunningPods != tt.running || snap.Containers != tt.counted {
				t.Errorf("%v; %d running pods, containers %v; want %d, %v", snap.Last.Err, snap.RunningPods, snap.Containers, tt.running, tt.counted)
			}
			var got []string
			for _, e := range drain(l) {
				got = append(got, e.PodUID+" "+string(e.Type)+" "+e.ID)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tt.events, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			// The same again, entry by entry: nothing new.
			l.relist(t.Context())
			if events := drain(l); len(events) > 0 {
				t.Errorf("the same lists again: %+v", events)
			}
			rt.sandboxes, rt.containers = nil, nil
			l.relist(t.Context())
			if len(l.records.pods) > 0 || l.cache.Len() > 0 || l.records.count > 0 {
				t.Errorf("left of nothing: %d pods, %d in the cache", len(l.records.pods), l.cache.Len())
			}
		})
	}
}

// TestIDChangesPod: a container that moves to another pod is gone from one and
// new in the other.
func TestIDChangesPod(t *testing.T) {
	rt := newScript(t)
	l := New(rt, Config{}, nil)
	rt.containers = []*cri.Container{container("u", "c", cri.StateRunning)}
	l.relist(t.Context())
	drain(l)
	rt.containers = []*cri.Container{container("v", "c", cri.StateRunning)}
	l.relist(t.Context())
	got := map[string]int{}
	for _, e := range drain(l) {
		got[e.PodUID+" "+string(e.Type)]++
	}
	if diff := cmp.Diff(map[string]int{"u ContainerDied": 1, "u ContainerRemoved": 1, "v ContainerStarted": 1}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if l.cache.Get("u") != nil || l.cache.Get("v") == nil {
		t.Errorf("the cache holds u: %v, v: %v", l.cache.Get("u"), l.cache.Get("v"))
	}
}

// TestPodNames come from whatever of the pod names it first: an orphan's labels,
// else the sandbox.
func TestPodNames(t *testing.T) {
	rt := newScript(t)
	nameless := container("u", "c", cri.StateRunning)
	nameless.PodName, nameless.PodNamespace = "", ""
	rt.containers = []*cri.Container{nameless, container("v", "d", cri.StateExited)}
	l := New(rt, Config{}, nil)
	l.relist(t.Context())
	names := func() map[string]string {
		got := map[string]string{}
		for _, e := range drain(l) {
			got[e.PodUID] = e.PodNamespace + "/" + e.PodName
		}
		return got
	}
	if diff := cmp.Diff(map[string]string{"u": "/", "v": "ns/pod-v"}, names()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	rt.sandboxes = []*cri.Sandbox{sandbox("u", "s", true)}
	l.relist(t.Context())
	if diff := cmp.Diff(map[string]string{"u": "ns/pod-u"}, names()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNewestFirst: pods are inspected in the order of their newest sandbox; one
// without a sandbox by its container. They are delivered as their inspections
// end.
func TestNewestFirst(t *testing.T) {
	rt := newScript(t)
	at := func(s *cri.Sandbox, created int64) *cri.Sandbox { s.CreatedAt = created; return s }
	orphan := container("orphan", "c", cri.StateRunning)
	orphan.CreatedAt = 25
	rt.sandboxes = []*cri.Sandbox{
		at(sandbox("old", "s1", true), 10), at(sandbox("newest", "s2", false), 5), at(sandbox("mid", "s4", true), 20),
		at(sandbox("newest", "s3", true), 30), at(sandbox("b-same", "s5", true), 7), at(sandbox("a-same", "s6", true), 7),
	}
	late := container("old", "x", cri.StateRunning)
	late.CreatedAt = 99 // a container does not make its pod newer
	rt.containers = []*cri.Container{orphan, late}
	l := New(rt, Config{InspectConcurrency: 1}, nil)
	l.relist(t.Context())
	var inspected []string
	for _, in := range l.Snapshot().Last.Inspections {
		inspected = append(inspected, in.UID)
	}
	want := []string{"newest", "orphan", "mid", "old", "a-same", "b-same"}
	if !slices.Equal(inspected, want) {
		t.Errorf("inspected %v, want %v", inspected, want)
	}
	asked := []ask{
		{cri.OpPodSandboxStatus, "s2"}, {cri.OpPodSandboxStatus, "s3"}, {cri.OpContainerStatus, "c"}, {cri.OpPodSandboxStatus, "s4"},
		{cri.OpPodSandboxStatus, "s1"}, {cri.OpContainerStatus, "x"}, {cri.OpPodSandboxStatus, "s6"}, {cri.OpPodSandboxStatus, "s5"},
	}
	if !slices.Equal(rt.asked, asked) {
		t.Errorf("asked %v, want %v", rt.asked, asked)
	}
}
