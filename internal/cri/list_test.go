package cri

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
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

// TestTooLargeIsStreamed: the list that the kubelet is refused is listed all the
// same, and it is said that it was refused, until it is small enough again.
func TestTooLargeIsStreamed(t *testing.T) {
	rt := serve(t, fakeruntime.Options{MaxSendMsgSize: smallLimit})
	pods := rt.FillPods(100, 3)
	c, seen := clientOf(t, rt, Options{})
	for i := range 3 {
		if got := containerIDs(t, c); !slices.Equal(got, modelIDs(rt)) {
			t.Fatalf("list %d holds %d containers of %d", i, len(got), len(modelIDs(rt)))
		}
		ch := c.ContainerChanges()
		if e := ch.Refused; e == nil || e.Operation != OpListContainers || !e.TooLarge() || e.Limit != smallLimit || !e.ByServer || e.Bytes <= smallLimit || e.Bytes != c.History(OpListContainers).Bytes {
			t.Fatalf("list %d: refused %+v", i, e)
		}
		if i > 0 && (ch.Before == nil || len(ch.Items) != 0) {
			t.Errorf("list %d: nothing changed, but %d did", i, len(ch.Items))
		}
	}
	// The runtime is asked once for what it cannot send.
	if n := rt.Calls("ListContainers").Started; n != 1 {
		t.Errorf("%d calls of ListContainers, want 1", n)
	}
	if n := rt.Calls("StreamContainers").Started; n != 3 {
		t.Errorf("%d calls of StreamContainers, want 3", n)
	}
	if got := seen.last(t); got.Operation != OpListContainers || got.Code != CodeOK || got.Bytes <= smallLimit {
		t.Errorf("the observer was told %+v", got)
	}
	if e := c.SandboxChanges().Refused; e != nil {
		t.Errorf("the sandboxes were never asked for: %+v", e)
	}

	// Changes are seen by streams as by calls.
	rt.ExitContainer(pods[0].ContainerIDs[0], 1, "")
	rt.RemovePod(pods[1].UID)
	if got := containerIDs(t, c); !slices.Equal(got, modelIDs(rt)) {
		t.Fatalf("%d containers of %d", len(got), len(modelIDs(rt)))
	}
	if ch := c.ContainerChanges(); len(ch.Items) != 4 || ch.Items[0].New == nil || ch.Items[0].New.ID != pods[0].ContainerIDs[0] || ch.Items[1].New != nil {
		t.Errorf("%+v; want 1 changed and 3 removed", ch.Items)
	}
	for _, p := range pods[2:95] {
		rt.RemovePod(p.UID)
	}
	for i := range 2 {
		if got := containerIDs(t, c); !slices.Equal(got, modelIDs(rt)) {
			t.Fatalf("%d containers of %d", len(got), len(modelIDs(rt)))
		}
		if e := c.ContainerChanges().Refused; e != nil {
			t.Errorf("list %d: small again, and refused %+v", i, e)
		}
	}
	if n := rt.Calls("ListContainers").Started; n != 2 {
		t.Errorf("%d calls of ListContainers, want one more", n)
	}
}

// TestSixteenMiBOfContainers: what the real limit stops, streams do not.
func TestSixteenMiBOfContainers(t *testing.T) {
	if testing.Short() {
		t.Skip("17,000 containers")
	}
	rt := serve(t, fakeruntime.Options{})
	rt.FillPods(4250, 4)
	c, _ := clientOf(t, rt, Options{})
	list, err := c.ListContainers(t.Context())
	if err != nil || len(list) != 17_000 {
		t.Fatalf("%d containers, %v; want 17000", len(list), err)
	}
	e := c.ContainerChanges().Refused
	if e == nil || e.Bytes <= MaxMessageBytes || e.Limit != MaxMessageBytes {
		t.Errorf("refused %+v", e)
	}
}

// TestStreamUnimplemented: a runtime without streams is asked for one once, until
// another runtime is there.
func TestStreamUnimplemented(t *testing.T) {
	rt := serve(t, fakeruntime.Options{MaxSendMsgSize: smallLimit, Like: fakeruntime.LikeContainerd17})
	rt.FillPods(100, 3)
	c, _ := clientOf(t, rt, Options{})
	for range 3 {
		_, err := c.ListContainers(t.Context())
		if e := failure(t, err); !e.TooLarge() || e.Bytes <= smallLimit {
			t.Fatalf("error %+v, want the refusal", e)
		}
	}
	if n := rt.Calls("StreamContainers").Started; n != 1 {
		t.Errorf("a runtime without streams was asked for one %d times, want once", n)
	}
	rt.Stop()
	rt.Become(fakeruntime.LikeContainerd2)
	rt.Start()
	// The connection may take a moment to know that it is gone.
	for ctx := within(t, 20*time.Second); ; {
		list, err := c.ListContainers(ctx)
		if err == nil && len(list) == 300 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("after the upgrade: %d containers, %v; want 300", len(list), err)
		}
	}
}

// TestStreamsThatFail leave nothing behind: the answer is the refusal, as without
// streams.
func TestStreamsThatFail(t *testing.T) {
	for name, term := range map[string]fakeruntime.Term{
		"breaks off":         fakeruntime.BreakOff(2),
		"breaks off at once": fakeruntime.BreakOff(0),
		"repeats items":      fakeruntime.Repeat(),
		"endless":            fakeruntime.Endless(),
		"garbage":            fakeruntime.Garbage(),
		"never ends":         fakeruntime.Unended(),
		"never begins":       fakeruntime.Hang(),
		"too long a part":    fakeruntime.Oversize(smallLimit + 1),
		"fails":              fakeruntime.Error(5, "no"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := serve(t, fakeruntime.Options{MaxSendMsgSize: smallLimit})
				pods := rt.FillPods(100, 3)
				c, _ := clientOf(t, rt, Options{})
				want := containerIDs(t, c)
				rt.ExitContainer(pods[0].ContainerIDs[0], 1, "")
				rt.Set("StreamContainers", term)
				for range 2 {
					start := time.Now()
					_, err := c.ListContainers(t.Context())
					if e := failure(t, err); !e.TooLarge() || e.Limit != smallLimit {
						t.Fatalf("error %+v, want the refusal", e)
					}
					if took := time.Since(start); took > streamIdle+time.Second {
						t.Errorf("it took %s", took)
					}
					if ch := c.ContainerChanges(); ch.List != nil || ch.Refused != nil || len(ch.Items) != 0 {
						t.Errorf("changes %+v of a list that was not read", ch)
					}
				}
				if n := len(c.containers.reader.items); n != 0 {
					t.Errorf("%d items are remembered of lists that failed", n)
				}
				rt.Set("StreamContainers")
				if got := containerIDs(t, c); !slices.Equal(got, want) {
					t.Errorf("%d containers afterwards, want %d", len(got), len(want))
				}
				if ch := c.ContainerChanges(); ch.Before != nil {
					t.Error("the first list after one that failed claims to know what changed")
				}
			})
		})
	}
}

// TestStreamThatFloods: new items without end take no more memory than the limit
// allows, and are forgotten.
func TestStreamThatFloods(t *testing.T) {
	rt := serve(t, fakeruntime.Options{MaxSendMsgSize: smallLimit})
	rt.FillPods(100, 3)
	c, seen := clientOf(t, rt, Options{})
	c.maxStreamed = 4 << 20
	rt.Set("StreamContainers", fakeruntime.Flood())
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // what is in a sync.Pool survives one
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var after []uint64
	for range 2 {
		_, err := c.ListContainers(t.Context())
		if e := failure(t, err); !e.TooLarge() {
			t.Fatalf("error %+v, want the refusal", e)
		}
		after = append(after, heap())
	}
	// The refusal was the first call's; the stream after it failed.
	if got := seen.last(t); got.Code == CodeOK {
		t.Errorf("the observer was told %+v", got)
	}
	if n := len(c.containers.reader.items); n != 0 {
		t.Errorf("%d items are remembered after streams without end", n)
	}
	if int64(after[1])-int64(after[0]) > 2<<20 {
		t.Errorf("the second flood left %d bytes more than the first", int64(after[1])-int64(after[0]))
	}
}

// TestStreamedListOfADeadRuntime: while a list is streamed, what happens to the
// runtime is told as it is and not hidden behind the old refusal.
func TestStreamedListOfADeadRuntime(t *testing.T) {
	rt := serve(t, fakeruntime.Options{MaxSendMsgSize: smallLimit})
	rt.FillPods(100, 3)
	c, _ := clientOf(t, rt, Options{})
	containerIDs(t, c)
	rt.Kill()
	_, err := c.ListContainers(t.Context())
	if e := failure(t, err); e.Code != CodeUnavailable {
		t.Errorf("error %+v, want Unavailable", e)
	}
	var e *Error
	if _, err := c.ListContainers(t.Context()); !errors.As(err, &e) || e.TooLarge() {
		t.Errorf("the call after it: %v", err)
	}
}

// TestSandboxesAreStreamedToo, with items of every kind.
func TestSandboxesAreStreamedToo(t *testing.T) {
	rt := serve(t, fakeruntime.Options{MaxSendMsgSize: smallLimit})
	rt.FillPods(300, 1)
	rt.AddRawSandbox(&runtimeapi.PodSandbox{Id: "bare"}, &runtimeapi.PodSandbox{})
	c, _ := clientOf(t, rt, Options{})
	for range 2 {
		list, err := c.ListPodSandbox(t.Context())
		if err != nil || len(list) != 302 {
			t.Fatalf("%d sandboxes, %v; want 302", len(list), err)
		}
		if e := c.SandboxChanges().Refused; e == nil || e.Operation != OpListPodSandbox {
			t.Errorf("refused %+v", e)
		}
	}
}
