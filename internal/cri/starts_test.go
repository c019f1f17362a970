package cri

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/test/check"
)

// TestFailedStarts: a container that has ended without having run is a failed start, as each runtime states it, until another
// one runs.
func TestFailedStarts(t *testing.T) {
	const exited, running = runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_RUNNING
	status := func(id string, state runtimeapi.ContainerState, started int64, message string) *runtimeapi.ContainerStatus {
		return &runtimeapi.ContainerStatus{
			Id: id, State: state, CreatedAt: 100, StartedAt: started, FinishedAt: 200, Message: message,
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Labels: map[string]string{labelPodUID: "u"},
		}
	}
	for name, tt := range map[string]struct {
		statuses []*runtimeapi.ContainerStatus
		want     int
	}{
		"containerd":                {[]*runtimeapi.ContainerStatus{status("a", exited, 0, "no")}, 1},
		"cri-dockerd":               {[]*runtimeapi.ContainerStatus{status("a", exited, 100, "no")}, 1},
		"asked twice":               {[]*runtimeapi.ContainerStatus{status("a", exited, 0, "no"), status("a", exited, 0, "no")}, 1},
		"two":                       {[]*runtimeapi.ContainerStatus{status("a", exited, 0, "no"), status("b", exited, 0, "no")}, 2},
		"it has run":                {[]*runtimeapi.ContainerStatus{status("a", exited, 150, "no")}, 0},
		"no message":                {[]*runtimeapi.ContainerStatus{status("a", exited, 0, "")}, 0},
		"not started yet":           {[]*runtimeapi.ContainerStatus{status("a", runtimeapi.ContainerState_CONTAINER_CREATED, 0, "")}, 0},
		"another runs since":        {[]*runtimeapi.ContainerStatus{status("a", exited, 0, "no"), status("b", running, 150, "")}, 0},
		"another runs, asked first": {[]*runtimeapi.ContainerStatus{status("b", running, 150, ""), status("a", exited, 0, "no")}, 0},
		"another has run since":     {[]*runtimeapi.ContainerStatus{status("a", exited, 0, "no"), status("b", exited, 150, "")}, 0},
		"an empty answer":           {[]*runtimeapi.ContainerStatus{nil}, 0},
	} {
		var s starts
		for _, c := range tt.statuses {
			s.note(c)
		}
		check.Equal(t, len(s.failed), tt.want, "%s: %+v", name, s.failed)
	}
	var s starts
	for n := range 2 * maxFailedStarts {
		c := status(fmt.Sprint(n), exited, 0, "no")
		c.CreatedAt = int64(1000 - n)
		s.note(c)
	}
	again := status("again", exited, 0, "no")
	again.CreatedAt = 2000
	other := status("other", exited, 0, "no")
	other.CreatedAt = 2001
	other.Metadata = &runtimeapi.ContainerMetadata{Name: "other"}
	ran := starts{}
	for _, c := range []*runtimeapi.ContainerStatus{status("b", running, 150, ""), again, other} {
		ran.note(c)
	}
	check.Equal(t, ran.failed[0].HasRun, true, "the container has run before")
	check.Equal(t, ran.failed[1].HasRun, false, "another one has run")
	check.Equal(t, len(s.failed), maxFailedStarts, "what is kept")
	check.Equal(t, s.failed[maxFailedStarts-1], FailedStart{ID: "0", Name: "app", PodUID: "u", CreatedAt: 1000, Message: "no"}, "the newest")
}
