package cri

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// noSlot leaves out of a comparison what is the reader's own.
var noSlot = []cmp.Option{cmpopts.IgnoreFields(Sandbox{}, "Slot"), cmpopts.IgnoreFields(Container{}, "Slot")}

// TestSlots: no two items of a list share one, an item keeps its own while it is
// listed, and those of items that went are used again.
func TestSlots(t *testing.T) {
	r := newContainerReader()
	list := func(state runtimeapi.ContainerState, ids ...string) map[string]int {
		t.Helper()
		m := &runtimeapi.ListContainersResponse{}
		for _, id := range ids {
			m.Containers = append(m.Containers, &runtimeapi.Container{Id: id, State: state})
		}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(r, b)
		if err != nil {
			t.Fatal(err)
		}
		slots, taken := map[string]int{}, map[int]string{}
		for _, c := range got {
			if other, ok := taken[c.Slot]; ok {
				t.Fatalf("%s and %s share slot %d", other, c.ID, c.Slot)
			}
			slots[c.ID], taken[c.Slot] = c.Slot, c.ID
		}
		return slots
	}
	first := list(1, "a", "b", "c")
	changed := list(2, "c", "a", "b")
	if diff := cmp.Diff(first, changed); diff != "" {
		t.Errorf("slots of items that only changed their state (-before +after):\n%s", diff)
	}
	list(2, "a")
	if again := list(2, "a", "d", "e"); again["a"] != first["a"] || again["d"] > 2 || again["e"] > 2 {
		t.Errorf("slots %v: those of b and c are free to be used again", again)
	}
}
