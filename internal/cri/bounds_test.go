package cri

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
)

// bareItems are n list items with nothing but an id.
func bareItems(n int, prefix string) []byte {
	var b []byte
	for i := range n {
		item := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), fmt.Sprint(prefix, i))
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), item)
	}
	return b
}

// TestTooManyEntries: as many entries as fit are read; one more, and none is.
func TestTooManyEntries(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	c, _ := clientOf(t, rt, Options{})
	rt.AddRawBytes(bareItems(MaxEntries, "s"), nil)
	list, err := c.ListPodSandbox(t.Context())
	if err != nil || len(list) != MaxEntries {
		t.Fatalf("%d entries, %v", len(list), err)
	}
	rt.AddRawBytes(bareItems(1, "one more"), nil)
	_, err = c.ListPodSandbox(t.Context())
	var e *health.CallError
	if !errors.As(err, &e) || !e.TooMany || e.Code != CodeResourceExhausted || e.Bytes > 0 || e.Undecodable {
		t.Fatalf("%+v", err)
	}
	rt.ClearRaw()
	if list, err := c.ListPodSandbox(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%d entries afterwards, %v", len(list), err)
	}
}

// TestLongItemInOddOrder: an item whose encoding is too long to be kept is decoded in
// each list, and its changes are seen.
func TestLongItemInOddOrder(t *testing.T) {
	r := newContainerReader()
	item, err := proto.Marshal(&runtimeapi.Container{
		Id: "a", Metadata: &runtimeapi.ContainerMetadata{Name: "n"}, ImageRef: strings.Repeat("i", maxPrefix),
	})
	if err != nil {
		t.Fatal(err)
	}
	list := func(state State) *Container {
		t.Helper()
		b := listOf(join(item, entry(8, "k", "v"), varint(6, uint64(state))))
		got, err := read(r, b)
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if len(r.items) > 0 {
			t.Error("it is remembered")
		}
		return got[0]
	}
	for _, state := range []State{StateRunning, StateRunning, StateExited} {
		if c := list(state); c.State != state {
			t.Errorf("%s, want %s", c.State, state)
		}
	}
}

// TestBrokenListsAreForgotten: lists that break off, with other ids each time,
// do not add up.
func TestBrokenListsAreForgotten(t *testing.T) {
	r := newSandboxReader()
	for i := range 20 {
		b := append(bareItems(MaxEntries/4, fmt.Sprint(i, "-")), 0x0a, 0x7f)
		if _, err := r.read(mem.BufferSlice{mem.SliceBuffer(b)}); err == nil {
			t.Fatal("it was read")
		}
		if len(r.items) > 2*MaxEntries {
			t.Fatalf("%d items are remembered after %d broken lists", len(r.items), i+1)
		}
	}
}

// TestLargeStatuses: an answer about one container may be as large as the
// kubelet's limit, and no larger.
func TestLargeStatuses(t *testing.T) {
	rt := serve(t, fakeruntime.Options{MaxSendMsgSize: 64 << 20})
	pod := rt.FillPods(1, 1)[0]
	c, seen := clientOf(t, rt, Options{})
	rt.Set("ContainerStatus", fakeruntime.Oversize(MaxMessageBytes))
	if _, err := c.ContainerStatus(t.Context(), pod.ContainerIDs[0]); err != nil || seen.last(t).Bytes != MaxMessageBytes {
		t.Errorf("%v, %+v", err, seen.last(t))
	}
	rt.Set("ContainerStatus", fakeruntime.Oversize(MaxMessageBytes+1))
	_, err := c.ContainerStatus(t.Context(), pod.ContainerIDs[0])
	var e *health.CallError
	if !errors.As(err, &e) || e.Bytes == 0 {
		t.Errorf("%+v", err)
	}
	if n := len(seen.all()); n != 2 {
		t.Errorf("the observer got %d calls, want 2", n)
	}
}

// TestLongTextsAreCut: the memory for an answer does not grow with its texts.
func TestLongTextsAreCut(t *testing.T) {
	long := strings.Repeat("ä", 1<<19)
	rt := serve(t, fakeruntime.Options{MaxSendMsgSize: 64 << 20})
	rt.SetVersion(long, long)
	rt.SetCondition(runtimeapi.NetworkReady, false, long, long)
	rt.AddRawSandbox(&runtimeapi.PodSandbox{Id: long, Metadata: &runtimeapi.PodSandboxMetadata{Name: long, Namespace: long, Uid: long}})
	c, _ := clientOf(t, rt, Options{})
	v, err := c.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.ListPodSandbox(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatal(len(list), err)
	}
	rt.Set("Version", fakeruntime.Error(codes.Unknown, long))
	_, failed := c.Version(t.Context())
	var e *health.CallError
	if !errors.As(failed, &e) {
		t.Fatal(failed)
	}
	for what, text := range map[string]string{
		"a runtime's name": v.RuntimeName, "a version": v.RuntimeVersion, "a condition's reason": s.NetworkReady.Reason,
		"a condition's message": s.NetworkReady.Message, "an error": e.Message,
		"an id": list[0].ID, "a uid": list[0].PodUID, "a name": list[0].Name, "a namespace": list[0].Namespace,
	} {
		if len(text) > maxMessage || !strings.HasPrefix(long, text) || text == "" {
			t.Errorf("%s has %d bytes", what, len(text))
		}
	}
}
