package cri

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestStatusConditions: a condition that the answer does not hold is nil, which
// is not the same as false.
func TestStatusConditions(t *testing.T) {
	yes := &facts.Condition{Status: true}
	for _, tt := range []struct {
		name string
		set  func(*fakeruntime.Runtime)
		want facts.Status
	}{
		{"both true", func(*fakeruntime.Runtime) {}, facts.Status{Answered: true, RuntimeReady: yes, NetworkReady: yes}},
		{"no network", func(rt *fakeruntime.Runtime) { _ = rt.SetFailpoints("Status=notready(NetworkReady)") }, facts.Status{
			Answered:     true,
			RuntimeReady: yes,
			NetworkReady: &facts.Condition{Reason: fakeruntime.ReasonNetworkNotReady, Message: fakeruntime.MessageNetworkNotReady},
		}},
		{"runtime false", func(rt *fakeruntime.Runtime) { rt.SetCondition(runtimeapi.RuntimeReady, false, "Why", "because") }, facts.Status{
			Answered:     true,
			RuntimeReady: &facts.Condition{Reason: "Why", Message: "because"}, NetworkReady: yes,
		}},
		{"network missing", func(rt *fakeruntime.Runtime) { rt.RemoveCondition(runtimeapi.NetworkReady) }, facts.Status{Answered: true, RuntimeReady: yes}},
		{"both missing, another there", func(rt *fakeruntime.Runtime) {
			rt.RemoveCondition(runtimeapi.RuntimeReady)
			rt.RemoveCondition(runtimeapi.NetworkReady)
			rt.SetCondition("ContainerdHasNoDeprecationWarnings", false, "", "")
		}, facts.Status{Answered: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rt := serve(t, fakeruntime.Options{})
			tt.set(rt)
			c, _ := clientOf(t, rt, Options{})
			got, err := c.Status(t.Context())
			must.Do(t, err)
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
	c, _ := clientOf(t, rt, Options{})
	if err := c.StatusOf(t.Context(), &Entry{ID: pod.ContainerIDs[0]}); err != nil {
		t.Error(err)
	}
	for _, sandbox := range []bool{false, true} {
		if e := failure(t, c.StatusOf(t.Context(), &Entry{Sandbox: sandbox, ID: "nobody"})); e.Code != CodeNotFound {
			t.Errorf("%+v, want NotFound", e)
		}
	}
	rt.Set("PodSandboxStatus", fakeruntime.Empty())
	check.NoError(t, c.StatusOf(t.Context(), &Entry{Sandbox: true, ID: pod.SandboxID}), "an empty answer")
}

// sameLists compares the lists as the client reads them with what the runtime has.
func sameLists(t *testing.T, rt *fakeruntime.Runtime, c *Client) {
	t.Helper()
	wantS, wantC := rt.Snapshot()
	sandboxes, err := c.ListPodSandbox(t.Context())
	must.Do(t, err)
	containers, err := c.ListContainers(t.Context())
	must.Do(t, err)
	want, got := map[string]Entry{}, map[string]Entry{}
	for _, p := range wantS {
		want["sandbox "+p.Id] = plainSandbox(p)
	}
	for _, p := range wantC {
		want["container "+p.Id] = plainContainer(p)
	}
	for _, e := range sandboxes {
		got["sandbox "+e.ID] = *e
	}
	for _, e := range containers {
		got["container "+e.ID] = *e
	}
	if diff := cmp.Diff(want, got); diff != "" || len(sandboxes) != len(wantS) || len(containers) != len(wantC) {
		t.Errorf("%d sandboxes, %d containers (-want +got):\n%s", len(sandboxes), len(containers), diff)
	}
}
