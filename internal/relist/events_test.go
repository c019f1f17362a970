package relist

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/cri"
)

// TestEventTable is the kubelet's table, cell by cell, made by a container that
// is in one state in one list and in another in the next.
func TestEventTable(t *testing.T) {
	const absent = cri.State(99)
	states := map[string]cri.State{
		"absent": absent, "created": cri.StateCreated, "running": cri.StateRunning, "exited": cri.StateExited, "unknown": cri.StateUnknown,
	}
	want := map[string]map[string][]EventType{
		"absent":  {"created": {ContainerChanged}, "unknown": {ContainerChanged}, "running": {ContainerStarted}, "exited": {ContainerDied}},
		"created": {"running": {ContainerStarted}, "exited": {ContainerDied}, "absent": {ContainerDied, ContainerRemoved}},
		"unknown": {"running": {ContainerStarted}, "exited": {ContainerDied}, "absent": {ContainerDied, ContainerRemoved}},
		"running": {"created": {ContainerChanged}, "unknown": {ContainerChanged}, "exited": {ContainerDied}, "absent": {ContainerDied, ContainerRemoved}},
		"exited":  {"created": {ContainerChanged}, "unknown": {ContainerChanged}, "running": {ContainerStarted}, "absent": {ContainerRemoved}},
	}
	for from, old := range states {
		for to, now := range states {
			t.Run(from+" to "+to, func(t *testing.T) {
				rt, seen := newScript(t), newWatcher()
				l := New(rt, Config{}, seen)
				for _, s := range []cri.State{old, now} {
					rt.containers = nil
					if s != absent {
						rt.containers = []*cri.Container{container("u", "c", s)}
					}
					drain(l)
					seen.events = map[EventType]int{}
					l.relist(t.Context())
				}
				var delivered []EventType
				for _, e := range drain(l) {
					delivered = append(delivered, e.Type)
				}
				generated, expect := map[EventType]int{}, []EventType(nil)
				for _, typ := range want[from][to] {
					generated[typ]++
					if typ != ContainerChanged {
						expect = append(expect, typ)
					}
				}
				if diff := cmp.Diff(expect, delivered); diff != "" {
					t.Errorf("delivered (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(generated, seen.events); diff != "" {
					t.Errorf("generated (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestEventsOfOnePod: containers before sandboxes.
func TestEventsOfOnePod(t *testing.T) {
	rt := newScript(t)
	l := New(rt, Config{}, newWatcher())
	rt.sandboxes = []*cri.Sandbox{sandbox("u", "s", true)}
	rt.containers = []*cri.Container{container("u", "c1", cri.StateRunning), container("u", "c2", cri.StateExited)}
	l.relist(t.Context())
	var got []string
	for _, e := range drain(l) {
		got = append(got, fmt.Sprintf("%s %s %s %t", e.Type, e.ID, e.Name, e.Sandbox))
	}
	want := []string{"ContainerStarted c1 name-c1 false", "ContainerDied c2 name-c2 false", "ContainerStarted s  true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
