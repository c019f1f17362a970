package fakeruntime_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/must"
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
		must.Do(t, err)
		gotC, err := client.ListContainers(within(t, 10*time.Second), &runtimeapi.ListContainersRequest{})
		must.Do(t, err)
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
