package cri

import (
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
)

// lists are the answers of a runtime with some pods, marshalled again and
// shuffled each time, as runtimes do: with several labels hardly two encodings
// of one container are the same.
type lists struct {
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
}

func someLists(pods int) *lists {
	m := fakeruntime.New(fakeruntime.Options{Seed: 1})
	m.FillPods(pods, 2)
	s, c := m.Snapshot()
	return &lists{s, c}
}

func (l *lists) marshal(t testing.TB) (sandboxes, containers []byte) {
	t.Helper()
	rand.Shuffle(len(l.sandboxes), func(i, j int) { l.sandboxes[i], l.sandboxes[j] = l.sandboxes[j], l.sandboxes[i] })
	rand.Shuffle(len(l.containers), func(i, j int) { l.containers[i], l.containers[j] = l.containers[j], l.containers[i] })
	sandboxes, err := proto.Marshal(&runtimeapi.ListPodSandboxResponse{Items: l.sandboxes})
	if err != nil {
		t.Fatal(err)
	}
	containers, err = proto.Marshal(&runtimeapi.ListContainersResponse{Containers: l.containers})
	if err != nil {
		t.Fatal(err)
	}
	return sandboxes, containers
}

// byID reads a list and returns its items.
func byID[T any](t testing.TB, r *listReader[T], id func(*T) string, b []byte) map[string]*T {
	t.Helper()
	items, err := read(r, b)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*T{}
	for _, it := range items {
		out[id(it)] = it
	}
	if len(out) != len(items) {
		t.Fatalf("%d items with %d ids", len(items), len(out))
	}
	return out
}

func sandboxID(s *Sandbox) string     { return s.ID }
func containerID(c *Container) string { return c.ID }

func TestListReaderKeepsWhatDoesNotChange(t *testing.T) {
	l := someLists(100)
	sandboxes := newSandboxReader()
	containers := newContainerReader()
	var firstS map[string]*Sandbox
	var firstC map[string]*Container
	for i := range 50 {
		sb, cb := l.marshal(t)
		s, c := byID(t, sandboxes, sandboxID, sb), byID(t, containers, containerID, cb)
		if i == 0 {
			firstS, firstC = s, c
		}
		if len(s) != 100 || len(c) != 200 {
			t.Fatalf("%d sandboxes and %d containers, want 100 and 200", len(s), len(c))
		}
		for id, v := range s {
			if firstS[id] != v {
				t.Fatalf("answer %d: sandbox %s is another value than in the first", i, id)
			}
		}
		for id, v := range c {
			if firstC[id] != v {
				t.Fatalf("answer %d: container %s is another value than in the first", i, id)
			}
		}
	}
}

func TestListReaderSeesChanges(t *testing.T) {
	l := someLists(10)
	sandboxes := newSandboxReader()
	containers := newContainerReader()
	sb, cb := l.marshal(t)
	s, c := byID(t, sandboxes, sandboxID, sb), byID(t, containers, containerID, cb)

	gotS, gotC := l.sandboxes[3].Id, l.containers[7].Id
	l.sandboxes[3] = proto.CloneOf(l.sandboxes[3])
	l.sandboxes[3].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	l.containers[7] = proto.CloneOf(l.containers[7])
	l.containers[7].State = runtimeapi.ContainerState_CONTAINER_EXITED
	sb, cb = l.marshal(t)
	for id, v := range byID(t, sandboxes, sandboxID, sb) {
		switch {
		case id == gotS && (v == s[id] || v.Ready || !s[id].Ready):
			t.Errorf("sandbox %s: the same value %t, ready %t; want a new one that is not, and the old one unchanged", id, v == s[id], v.Ready)
		case id != gotS && v != s[id]:
			t.Errorf("sandbox %s did not change and is another value", id)
		}
	}
	for id, v := range byID(t, containers, containerID, cb) {
		switch {
		case id == gotC && (v == c[id] || v.State != StateExited || c[id].State != StateRunning):
			t.Errorf("container %s: the same value %t, %s; want a new one that has exited, and the old one as it was", id, v == c[id], v.State)
		case id == gotC && v.PodUID != c[id].PodUID:
			t.Errorf("container %s: pod %q, was %q", id, v.PodUID, c[id].PodUID)
		case id != gotC && v != c[id]:
			t.Errorf("container %s did not change and is another value", id)
		}
	}
}

// TestListReaderForgets: an item that is no longer in the list is forgotten, and
// new again when it comes back.
func TestListReaderForgets(t *testing.T) {
	l := someLists(10)
	containers := newContainerReader()
	_, cb := l.marshal(t)
	before := byID(t, containers, containerID, cb)
	all := slices.Clone(l.containers)
	l.containers = slices.Clone(all[:5])
	_, cb = l.marshal(t)
	byID(t, containers, containerID, cb)
	if len(containers.items) != 5 {
		t.Errorf("%d containers are remembered of a list of 5", len(containers.items))
	}
	l.containers = slices.Clone(all)
	_, cb = l.marshal(t)
	for id, v := range byID(t, containers, containerID, cb) {
		kept := slices.ContainsFunc(all[:5], func(c *runtimeapi.Container) bool { return c.Id == id })
		if same := v == before[id]; same != kept {
			t.Errorf("container %s: the value of before: %t, want %t", id, same, kept)
		}
	}
	if _, err := read(containers, nil); err != nil || len(containers.items) != 0 {
		t.Errorf("after an empty list: %d containers are remembered, %v", len(containers.items), err)
	}
}

// TestListReaderAfterAnError: the list after one that could not be read is read
// like the first.
func TestListReaderAfterAnError(t *testing.T) {
	l := someLists(10)
	containers := newContainerReader()
	_, cb := l.marshal(t)
	before := byID(t, containers, containerID, cb)
	if _, err := read(containers, cb[:len(cb)-3]); err == nil {
		t.Fatal("a truncated answer: no error")
	}
	if n := len(containers.items); n != 0 {
		t.Errorf("%d containers are remembered of a truncated answer", n)
	}
	_, cb = l.marshal(t)
	after := byID(t, containers, containerID, cb)
	for id, v := range before {
		if got := after[id]; got == nil || *got != *v {
			t.Errorf("container %s: %+v, want %+v", id, got, v)
		}
	}
}

// TestListReaderForgetsOldEncodings: an item that is as it was before its last
// change is found changed again, and only the last encoding is kept.
func TestListReaderForgetsOldEncodings(t *testing.T) {
	l := someLists(50) // 100 containers
	containers := newContainerReader()
	first, second := l.containers, make([]*runtimeapi.Container, len(l.containers))
	for i, c := range first {
		second[i] = proto.CloneOf(c)
		second[i].State = runtimeapi.ContainerState_CONTAINER_EXITED
	}
	first, second = slices.Clone(first), slices.Clone(second) // marshal shuffles
	for i := range 400 {
		want := StateRunning
		if l.containers = first; i%2 == 1 {
			l.containers, want = second, StateExited
		}
		_, cb := l.marshal(t)
		for id, c := range byID(t, containers, containerID, cb) {
			if c.State != want {
				t.Fatalf("list %d: container %s is %s, want %s", i, id, c.State, want)
			}
		}
	}
}
