package fakeruntime_test

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
)

// TestAnswerIsWhatTheMarshallerWrites decodes lists that hold every kind of entry. Each
// answer has its content in another order, which clients' shortcuts are tested against.
func TestAnswerIsWhatTheMarshallerWrites(t *testing.T) {
	rt := start(t, fakeruntime.Options{})
	client := connect(t, rt)
	pods := rt.FillPods(20, 2)
	orders := map[string]bool{}
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
		orders[gotS.Items[0].Id+gotS.Items[1].Id] = true
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
	rt.AddRawContainer(&runtimeapi.Container{Id: "raw", Labels: map[string]string{"": "x"}})
	check()
	rt.Churn(1)
	check()
	if len(orders) == 1 {
		t.Error("three answers have the same order")
	}
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

	other := rt.AddPod(fakeruntime.PodSpec{})
	rt.StopSandbox(pod.SandboxID)
	ready, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": other.UID},
	}})
	if err != nil || len(ready.Items) != 1 || ready.Items[0].Id != other.SandboxID {
		t.Fatalf("the ready sandboxes: %v, %v", ready, err)
	}

	rt.RemovePod(pod.UID)
	if s, c := rt.Snapshot(); len(s) != 1 || len(c) != 0 {
		t.Errorf("after the pod is removed: %v, %v", s, c)
	}
	_, err = client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: app})
	if status.Code(err) != codes.NotFound {
		t.Errorf("a removed container's status: %v, want NotFound", err)
	}
}

func TestChurn(t *testing.T) {
	rt := fakeruntime.New(fakeruntime.Options{})
	rt.FillPods(110, 2)
	states := func() (running, exited int) {
		_, containers := rt.Snapshot()
		for _, c := range containers {
			if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
				running++
			} else {
				exited++
			}
		}
		return running, exited
	}
	n := rt.Churn(0.1)
	if running, exited := states(); n != 11 || running != 220 || exited != 11 {
		t.Errorf("Churn(0.1) of 110 pods changed %d: %d run, %d have exited", n, running, exited)
	}
	total := 0
	for range 100 {
		total += rt.Churn(0.001)
	}
	for range 5 {
		rt.Churn(1)
	}
	if running, exited := states(); total != 11 || running != 220 || exited != 220 {
		t.Errorf("100 times Churn(0.001) changed %d, want 11; after much churn %d run, %d have exited, want one for each", total, running, exited)
	}
}

// TestEvents: each subscriber gets each event, and one that does not read delays
// neither the model nor the others.
func TestEvents(t *testing.T) {
	rt := start(t, fakeruntime.Options{})
	pod := rt.AddPod(fakeruntime.PodSpec{Containers: []string{"app"}})
	client := connect(t, rt)
	ctx := within(t, 10*time.Second)
	var streams [2]grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]
	for i := range streams {
		var err error
		if streams[i], err = client.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := rt.AwaitSubscribers(ctx, 2); err != nil {
		t.Fatal(err)
	}
	rt.ExitContainer(pod.ContainerIDs[0], 3, "")
	for range 500 {
		rt.Churn(1) // nothing runs: no event
		rt.RemoveContainer(rt.AddContainer(pod.UID, "x"))
	}
	for _, s := range streams {
		e, err := s.Recv()
		if err != nil || e.ContainerEventType != runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT ||
			e.ContainersStatuses[0].ExitCode != 3 || e.PodSandboxStatus.Id != pod.SandboxID {
			t.Fatalf("first event: %v, %v", e, err)
		}
		for i := range 1000 {
			if _, err = s.Recv(); err != nil {
				t.Fatalf("event %d: %v", i, err)
			}
		}
	}
	rt.EndEvents()
	for _, s := range streams {
		if e, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("after EndEvents: %v, %v; want EOF", e, err)
		}
	}
}
