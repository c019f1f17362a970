package fakeruntime_test

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
)

// bytesCodec hands over an answer's bytes.
type bytesCodec struct{ encoding.CodecV2 }

func (c bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if b, ok := v.(*[]byte); ok {
		*b = data.Materialize()
	}
	return nil
}

func rawCall(t *testing.T, cc *grpc.ClientConn, method string, req proto.Message) []byte {
	t.Helper()
	var b []byte
	err := cc.Invoke(within(t, 10*time.Second), method, req, &b,
		grpc.ForceCodecV2(bytesCodec{encoding.GetCodecV2("proto")}))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWireSizes(t *testing.T) {
	rt := start(t, fakeruntime.Options{})
	rt.FillPods(110, 2)
	cc := dial(t, rt)
	sandboxes := rawCall(t, cc, runtimeapi.RuntimeService_ListPodSandbox_FullMethodName, &runtimeapi.ListPodSandboxRequest{})
	containers := rawCall(t, cc, runtimeapi.RuntimeService_ListContainers_FullMethodName, &runtimeapi.ListContainersRequest{})
	for _, c := range []struct {
		what      string
		got, want int
	}{
		{"sandbox", len(sandboxes) / 110, 820},
		{"container", len(containers) / 220, 1050},
	} {
		if off := c.got - c.want; off < -c.want/20 || off > c.want/20 {
			t.Errorf("a %s takes %d bytes on the wire, want %d within 5 %%", c.what, c.got, c.want)
		}
	}
}

// TestAnswersVary is what a client's shortcuts are tested against: the same
// content in other bytes and another order each time.
func TestAnswersVary(t *testing.T) {
	rt := start(t, fakeruntime.Options{})
	rt.FillPods(20, 2)
	cc := dial(t, rt)
	var first, second runtimeapi.ListContainersResponse
	var raw [2][]byte
	for i, into := range []*runtimeapi.ListContainersResponse{&first, &second} {
		raw[i] = rawCall(t, cc, runtimeapi.RuntimeService_ListContainers_FullMethodName, &runtimeapi.ListContainersRequest{})
		if err := proto.Unmarshal(raw[i], into); err != nil {
			t.Fatal(err)
		}
	}
	if bytes.Equal(raw[0], raw[1]) {
		t.Error("two answers are the same bytes")
	}
	ids := func(l []*runtimeapi.Container) []string {
		out := make([]string, len(l))
		for i, c := range l {
			out[i] = c.Id
		}
		return out
	}
	if slices.Equal(ids(first.Containers), ids(second.Containers)) {
		t.Error("two answers have the same order")
	}
	sortContainers(first.Containers)
	sortContainers(second.Containers)
	if d := gocmp.Diff(&first, &second, protocmp.Transform()); d != "" {
		t.Errorf("two answers differ in content:\n%s", d)
	}
}

// TestAnswerIsWhatTheMarshallerWrites decodes lists that hold every kind of entry.
func TestAnswerIsWhatTheMarshallerWrites(t *testing.T) {
	rt := start(t, fakeruntime.Options{})
	client := connect(t, rt)
	pods := rt.FillPods(4, 2)
	check := func() {
		t.Helper()
		wantS, wantC := rt.Snapshot()
		gotS, err := client.ListPodSandbox(within(t, 10*time.Second), &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			t.Fatal(err)
		}
		gotC, err := client.ListContainers(within(t, 10*time.Second), &runtimeapi.ListContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		sortSandboxes(wantS)
		sortSandboxes(gotS.Items)
		sortContainers(wantC)
		sortContainers(gotC.Containers)
		if d := gocmp.Diff(wantS, gotS.Items, protocmp.Transform()); d != "" {
			t.Error(d)
		}
		if d := gocmp.Diff(wantC, gotC.Containers, protocmp.Transform()); d != "" {
			t.Error(d)
		}
	}
	check()
	rt.ExitContainer(pods[0].ContainerIDs[0], 1, "")
	rt.StopSandbox(pods[1].SandboxID)
	rt.AddContainer(pods[2].UID, "late")
	rt.EditSandbox(pods[3].SandboxID, func(s *runtimeapi.PodSandbox) {
		s.Labels, s.RuntimeHandler = map[string]string{"only": ""}, "kata"
	})
	rt.EditContainer(pods[3].ContainerIDs[1], func(c *runtimeapi.Container) {
		c.Annotations, c.Image, c.Id = nil, nil, "renamed"
	})
	rt.AddRawContainer(&runtimeapi.Container{Id: "raw", Labels: map[string]string{"": "x"}})
	check()
	rt.Churn(1)
	check()
	rt.AddRawBytes([]byte{0x0a}, []byte{0x0a, 0x05, 0x0a, 0x03, 'r', 0xff, 'w'})
	_, err := client.ListPodSandbox(within(t, 10*time.Second), &runtimeapi.ListPodSandboxRequest{})
	wantStatus(t, err, codes.Internal, "unmarshal")
}

func sortSandboxes(l []*runtimeapi.PodSandbox) {
	slices.SortFunc(l, func(a, b *runtimeapi.PodSandbox) int { return cmp.Compare(a.Id, b.Id) })
}

func sortContainers(l []*runtimeapi.Container) {
	slices.SortFunc(l, func(a, b *runtimeapi.Container) int { return cmp.Compare(a.Id, b.Id) })
}

func TestSeedDetermines(t *testing.T) {
	now := func() time.Time { return time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC) }
	build := func(seed uint64) ([]*runtimeapi.PodSandbox, []*runtimeapi.Container) {
		rt := fakeruntime.New(fakeruntime.Options{Seed: seed, Now: now})
		rt.FillPods(10, 2)
		rt.Churn(0.35)
		return rt.Snapshot()
	}
	s1, c1 := build(7)
	s2, c2 := build(7)
	if d := gocmp.Diff(s1, s2, protocmp.Transform()) + gocmp.Diff(c1, c2, protocmp.Transform()); d != "" {
		t.Errorf("the same seed gives another runtime:\n%s", d)
	}
	s3, _ := build(8)
	if s1[0].Id == s3[0].Id {
		t.Error("another seed gives the same ids")
	}
}

func TestLifeOfAPod(t *testing.T) {
	rt := start(t, fakeruntime.Options{})
	client := connect(t, rt)
	ctx := within(t, 10*time.Second)
	pod := rt.AddPod(fakeruntime.PodSpec{Name: "web-0", Namespace: "shop", Containers: []string{"app"}, IPs: []string{"10.0.0.1", "fd00::1"}})
	app := pod.ContainerIDs[0]

	st, err := client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: app})
	if err != nil || st.Status.State != runtimeapi.ContainerState_CONTAINER_RUNNING || st.Status.StartedAt <= st.Status.CreatedAt {
		t.Fatalf("a running container's status: %v, %v", st, err)
	}
	sb, err := client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod.SandboxID})
	if err != nil || sb.Status.Network.Ip != "10.0.0.1" || sb.Status.Network.AdditionalIps[0].Ip != "fd00::1" {
		t.Fatalf("a ready sandbox's status: %v, %v", sb, err)
	}

	rt.ExitContainer(app, 42, "OOMKilled")
	next := rt.AddContainer(pod.UID, "app")
	st, err = client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: app})
	if err != nil || st.Status.ExitCode != 42 || st.Status.Reason != "OOMKilled" || st.Status.FinishedAt == 0 {
		t.Fatalf("an exited container's status: %v, %v", st, err)
	}
	list, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_CREATED},
	}})
	if err != nil || len(list.Containers) != 1 || list.Containers[0].Id != next || list.Containers[0].Metadata.Attempt != 1 {
		t.Fatalf("the created containers: %v, %v", list, err)
	}

	second := rt.AddSandbox(pod.UID)
	rt.StopSandbox(pod.SandboxID)
	ready, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": pod.UID},
	}})
	if err != nil || len(ready.Items) != 1 || ready.Items[0].Id != second || ready.Items[0].Metadata.Attempt != 1 {
		t.Fatalf("the ready sandboxes: %v, %v", ready, err)
	}

	rt.RemovePod(pod.UID)
	if s, c := rt.Snapshot(); len(s) != 0 || len(c) != 0 {
		t.Errorf("after the pod is removed: %v, %v", s, c)
	}
	_, err = client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: app})
	if status.Code(err) != codes.NotFound {
		t.Errorf("a removed container's status: %v, want NotFound", err)
	}
}

func TestRawAndEditedEntries(t *testing.T) {
	rt := start(t, fakeruntime.Options{})
	client := connect(t, rt)
	pod := rt.AddPod(fakeruntime.PodSpec{Containers: []string{"app"}})
	rt.AddRawSandbox(&runtimeapi.PodSandbox{Id: "bare"}, &runtimeapi.PodSandbox{Id: pod.SandboxID})
	rt.AddRawContainer(&runtimeapi.Container{Id: "bare"}, &runtimeapi.Container{})
	rt.EditSandbox(pod.SandboxID, func(s *runtimeapi.PodSandbox) { s.Metadata.Uid = "another" })
	rt.EditContainer(pod.ContainerIDs[0], func(c *runtimeapi.Container) { c.Metadata = nil })

	ctx := within(t, 10*time.Second)
	list, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, s := range list.Items {
		got[s.Id+"/"+s.GetMetadata().GetUid()]++
	}
	want := map[string]int{"bare/": 1, pod.SandboxID + "/": 1, pod.SandboxID + "/another": 1}
	if d := gocmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	cl, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil || len(cl.Containers) != 3 {
		t.Fatalf("%v, %v", cl, err)
	}
	for _, c := range cl.Containers {
		if c.Metadata != nil {
			t.Errorf("%v has metadata", c)
		}
	}
	if _, err := client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: "bare"}); err != nil {
		t.Error(err)
	}
	rt.ClearRaw()
	if s, c := rt.Snapshot(); len(s) != 1 || len(c) != 1 {
		t.Errorf("after ClearRaw: %d and %d entries", len(s), len(c))
	}
}

func TestStatusConditions(t *testing.T) {
	rt := start(t, fakeruntime.Options{})
	client := connect(t, rt)
	ask := func() (map[string]bool, *runtimeapi.StatusResponse) {
		t.Helper()
		resp, err := client.Status(within(t, 10*time.Second), &runtimeapi.StatusRequest{Verbose: true})
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]bool{}
		for _, c := range resp.Status.Conditions {
			m[c.Type] = c.Status
		}
		return m, resp
	}
	got, resp := ask()
	if d := gocmp.Diff(map[string]bool{"RuntimeReady": true, "NetworkReady": true}, got); d != "" || resp.Info["lastCNILoadStatus"] != "OK" {
		t.Errorf("at first: %s, %v", d, resp.Info)
	}
	rt.SetNetworkReady(false)
	rt.RemoveCondition(runtimeapi.RuntimeReady)
	got, resp = ask()
	if d := gocmp.Diff(map[string]bool{"NetworkReady": false}, got); d != "" || resp.Info["lastCNILoadStatus"] != fakeruntime.CNILoadStatusNoConfig {
		t.Errorf("without a network: %s, %v", d, resp.Info)
	}
	if r := resp.Status.Conditions[0].Reason; r != "NetworkPluginNotReady" {
		t.Errorf("reason %q", r)
	}
	rt.SetCondition(runtimeapi.RuntimeReady, false, "Why", "because")
	if got, _ = ask(); got["RuntimeReady"] {
		t.Error("RuntimeReady is still true")
	}
}

func TestChurn(t *testing.T) {
	rt := fakeruntime.New(fakeruntime.Options{})
	rt.FillPods(110, 2)
	_, before := rt.Snapshot()
	if n := rt.Churn(0.1); n != 11 {
		t.Errorf("Churn(0.1) of 110 pods changed %d, want 11", n)
	}
	_, after := rt.Snapshot()
	known := map[string]runtimeapi.ContainerState{}
	for _, c := range before {
		known[c.Id] = c.State
	}
	exited, added, pods := 0, 0, map[string]bool{}
	for _, c := range after {
		switch old, ok := known[c.Id]; {
		case !ok:
			added++
			pods[c.Labels["io.kubernetes.pod.uid"]] = true
		case old != c.State:
			exited++
		}
	}
	if exited != 11 || added != 11 || len(pods) != 11 {
		t.Errorf("%d exited, %d new, in %d pods; want 11 each", exited, added, len(pods))
	}
	total := 0
	for range 100 {
		total += rt.Churn(0.001)
	}
	if total != 11 {
		t.Errorf("100 times Churn(0.001) of 110 pods changed %d, want 11", total)
	}
	for range 5 {
		if n := rt.Churn(1); n != 110 {
			t.Errorf("Churn(1) changed %d of 110", n)
		}
	}
	if _, c := rt.Snapshot(); len(c) != 440 {
		t.Errorf("after much churn there are %d containers, want 440: one dead one for each that runs", len(c))
	}
}

func TestEvents(t *testing.T) {
	rt := start(t, fakeruntime.Options{})
	pod := rt.AddPod(fakeruntime.PodSpec{Containers: []string{"app"}})
	client := connect(t, rt)
	ctx, cancel := context.WithCancel(within(t, 10*time.Second))
	defer cancel()
	var streams []grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]
	for range 2 {
		s, err := client.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	if err := rt.AwaitSubscribers(ctx, 2); err != nil {
		t.Fatal(err)
	}
	// Nobody reads while 2,000 events pass: neither the model nor the other
	// subscriber is held up.
	rt.ExitContainer(pod.ContainerIDs[0], 3, "")
	for range 2000 {
		rt.SendEvent(&runtimeapi.ContainerEventResponse{ContainerId: "x"})
	}
	rt.LoseEvents(true)
	rt.RemoveContainer(pod.ContainerIDs[0])
	rt.LoseEvents(false)
	rt.RemoveSandbox(pod.SandboxID)
	for _, s := range streams {
		e, err := s.Recv()
		if err != nil || e.ContainerEventType != runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT ||
			e.ContainersStatuses[0].ExitCode != 3 || e.PodSandboxStatus.Id != pod.SandboxID {
			t.Fatalf("first event: %v, %v", e, err)
		}
		for range 2000 {
			if e, err = s.Recv(); err != nil || e.ContainerId != "x" {
				t.Fatal(e, err)
			}
		}
		if e, err = s.Recv(); err != nil || e.ContainerId != pod.SandboxID {
			t.Fatalf("last event: %v, %v", e, err)
		}
	}
	rt.EndEvents()
	for _, s := range streams {
		if e, err := s.Recv(); err == nil || err.Error() != "EOF" {
			t.Errorf("after EndEvents: %v, %v; want EOF", e, err)
		}
	}
	if n := rt.Subscribers(); n != 0 {
		t.Errorf("%d subscribers are left", n)
	}
}
