package cri

import (
	"testing"

	"github.com/plegd/plegd/internal/fakeruntime"
)

// TestFifteenThousandContainers: as many as fit into one unary answer of 16 MiB.
func TestFifteenThousandContainers(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	rt.FillPods(5000, 3)
	c, seen := clientOf(t, rt, Options{})
	for i := range 2 {
		list, err := c.ListContainers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 15_000 {
			t.Fatalf("list %d holds %d containers, want 15000", i, len(list))
		}
	}
	t.Logf("15000 containers in %d bytes", seen.last(t).Bytes)
	if ch := c.ContainerChanges(); ch.Before == nil || len(ch.Items) > 0 {
		t.Errorf("nothing changed: %+v", ch)
	}
}
