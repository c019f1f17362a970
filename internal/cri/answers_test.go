package cri

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
)

// TestStatusConditions: a condition that the answer does not hold is nil, which
// is not the same as false.
func TestStatusConditions(t *testing.T) {
	yes := &health.Condition{Status: true}
	for _, tt := range []struct {
		name string
		set  func(*fakeruntime.Runtime)
		want Status
	}{
		{"both true", func(*fakeruntime.Runtime) {}, Status{RuntimeReady: yes, NetworkReady: yes}},
		{"no network", func(rt *fakeruntime.Runtime) { _ = rt.SetFailpoints("Status=notready(NetworkReady)") }, Status{
			RuntimeReady: yes,
			NetworkReady: &health.Condition{Reason: fakeruntime.ReasonNetworkNotReady, Message: fakeruntime.MessageNetworkNotReady},
		}},
		{"runtime false", func(rt *fakeruntime.Runtime) { rt.SetCondition(runtimeapi.RuntimeReady, false, "Why", "because") }, Status{
			RuntimeReady: &health.Condition{Reason: "Why", Message: "because"}, NetworkReady: yes,
		}},
		{"network missing", func(rt *fakeruntime.Runtime) { rt.RemoveCondition(runtimeapi.NetworkReady) }, Status{RuntimeReady: yes}},
		{"both missing, another there", func(rt *fakeruntime.Runtime) {
			rt.RemoveCondition(runtimeapi.RuntimeReady)
			rt.RemoveCondition(runtimeapi.NetworkReady)
			rt.SetCondition("ContainerdHasNoDeprecationWarnings", false, "", "")
		}, Status{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rt := serve(t, fakeruntime.Options{})
			tt.set(rt)
			c, _ := clientOf(t, rt, Options{})
			got, err := c.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSingleQuestions: what exists is answered, what does not is NotFound, and an
// empty answer is an answer.
func TestSingleQuestions(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	pod := rt.AddPod(fakeruntime.PodSpec{Containers: []string{"server"}})
	rt.ExitContainer(pod.ContainerIDs[0], 137, "OOMKilled")
	c, _ := clientOf(t, rt, Options{})
	if code, err := c.ContainerStatus(t.Context(), pod.ContainerIDs[0]); err != nil || code != 137 {
		t.Errorf("exit code %d, %v", code, err)
	}
	if _, err := c.ContainerStatus(t.Context(), "nobody"); failure(t, err).Code != CodeNotFound {
		t.Errorf("%v, want NotFound", err)
	}
	if e := failure(t, c.PodSandboxStatus(t.Context(), "nobody")); e.Code != CodeNotFound {
		t.Errorf("%+v, want NotFound", e)
	}
	rt.Set("PodSandboxStatus", fakeruntime.Empty())
	if err := c.PodSandboxStatus(t.Context(), pod.SandboxID); err != nil {
		t.Errorf("an empty answer: %v", err)
	}
}

// sameLists compares the lists as the client reads them with what the runtime has.
func sameLists(t *testing.T, rt *fakeruntime.Runtime, c *Client) {
	t.Helper()
	wantS, wantC := rt.Snapshot()
	sandboxes, err := c.ListPodSandbox(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	containers, err := c.ListContainers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, k := map[string]Sandbox{}, map[string]Container{}
	for _, p := range wantS {
		s[p.Id] = plainSandbox(p)
	}
	for _, p := range wantC {
		k[p.Id] = plainContainer(p)
	}
	gotS, gotC := map[string]Sandbox{}, map[string]Container{}
	for _, v := range sandboxes {
		gotS[v.ID] = *v
	}
	for _, v := range containers {
		gotC[v.ID] = *v
	}
	if diff := cmp.Diff(s, gotS); diff != "" || len(sandboxes) != len(wantS) {
		t.Errorf("sandboxes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(k, gotC); diff != "" || len(containers) != len(wantC) {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
}
