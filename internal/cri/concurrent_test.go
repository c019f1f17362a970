package cri

import (
	"errors"
	"sync"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
)

// TestConcurrentCalls: inspections and Status continue while lists of many frames
// arrive, over one connection with reused buffers. Each call gets its own complete
// answer.
func TestConcurrentCalls(t *testing.T) {
	rt, path := listen(t, fakeruntime.Options{Seed: 5})
	pods := rt.FillPods(150, 2)
	rt.ExitContainer(pods[0].ContainerIDs[0], 1, "")
	rt.StopSandbox(pods[0].SandboxID)
	rt.AddRawContainer(&runtimeapi.Container{Id: "odd"})
	rt.AddRawSandbox(&runtimeapi.PodSandbox{Id: "odd"})
	c := unixClient(t, path)
	stop := make(chan struct{})
	var others sync.WaitGroup
	for i := range 4 {
		others.Go(func() {
			for n := i; ; n += 4 {
				select {
				case <-stop:
					return
				default:
				}
				pod := pods[n%len(pods)]
				if err := c.StatusOf(t.Context(), &Entry{Sandbox: true, ID: pod.SandboxID}); err != nil {
					t.Errorf("sandbox %s: %v", pod.SandboxID, err)
					return
				}
				err := c.StatusOf(t.Context(), &Entry{ID: pod.ContainerIDs[1]})
				var e *facts.CallError
				if errors.As(err, &e) && e.Code == CodeNotFound {
					continue // churned away
				}
				if err != nil {
					t.Errorf("container %s: %v", pod.ContainerIDs[1], err)
					return
				}
				if st, err := c.Status(t.Context()); err != nil || st.RuntimeReady == nil {
					t.Errorf("status %+v, %v", st, err)
					return
				}
			}
		})
	}
	for range 12 {
		rt.Churn(0.1)
		sameLists(t, rt, c)
	}
	close(stop)
	others.Wait()
}
