package cri

import (
	"errors"
	"slices"
	"testing"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
)

// smallLimit makes lists too large that are quickly made.
const smallLimit = 64 << 10

// containerIDs lists and returns the ids.
func containerIDs(t *testing.T, c *Client) []string {
	t.Helper()
	list, err := c.ListContainers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return idsOf(list)
}

func idsOf(list []*Container) []string {
	var ids []string
	for _, v := range list {
		ids = append(ids, v.ID)
	}
	slices.Sort(ids)
	return ids
}

func modelIDs(rt *fakeruntime.Runtime) []string {
	_, containers := rt.Snapshot()
	var ids []string
	for _, v := range containers {
		ids = append(ids, v.GetId())
	}
	slices.Sort(ids)
	return ids
}

// TestTooLarge: a list above the limit fails as the kubelet's does, and succeeds
// again once it is small enough.
func TestTooLarge(t *testing.T) {
	rt := serve(t, fakeruntime.Options{MaxSendMsgSize: smallLimit})
	pods := rt.FillPods(100, 3)
	c, _ := clientOf(t, rt, Options{})
	_, err := c.ListContainers(t.Context())
	var e *health.CallError
	if !errors.As(err, &e) || e.Operation != OpListContainers || e.Bytes == 0 || e.Limit != smallLimit || !e.ByServer ||
		e.Bytes <= smallLimit || e.Bytes != c.History(OpListContainers).Bytes {
		t.Fatalf("%+v", err)
	}
	for _, p := range pods[2:95] {
		rt.RemovePod(p.UID)
	}
	if got := containerIDs(t, c); !slices.Equal(got, modelIDs(rt)) {
		t.Fatalf("%d containers of %d", len(got), len(modelIDs(rt)))
	}
	if n := rt.Calls("StreamContainers").Started; n != 0 {
		t.Errorf("%d calls of StreamContainers", n)
	}
}

// TestFifteenThousandContainers: about as many as fit into one answer of 16 MiB.
func TestFifteenThousandContainers(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	rt.FillPods(5000, 3)
	c, _ := clientOf(t, rt, Options{})
	for range 2 {
		if list, err := c.ListContainers(t.Context()); err != nil || len(list) != 15_000 {
			t.Fatalf("%d containers, %v; want 15000", len(list), err)
		}
	}
}
