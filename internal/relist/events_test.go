package relist

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/cri"
)

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
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
