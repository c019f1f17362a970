package relist

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/fakeruntime"
)

// TestRelistDiffOverTheWire plays the random histories through a runtime, the
// wire and the client's reader, which remembers, gives slots and tells what has
// changed: what the loop makes of that is what the model makes of the lists.
func TestRelistDiffOverTheWire(t *testing.T) {
	toldOf := 0
	for seed := range uint32(12) {
		rt := fakeruntime.New(fakeruntime.Options{Seed: uint64(seed)})
		rt.Start()
		t.Cleanup(rt.Stop)
		client, err := cri.New(cri.Options{Dial: rt.Dialer()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })

		h := newHistory(t, noise(seed+100, 3000))
		w := &wired{script: h.rt, Client: client, server: rt}
		h.on(w)
		for len(h.program) > 0 {
			h.change()
			h.relist()
		}
		h.end()
		toldOf += w.toldOf
	}
	if toldOf < 100 {
		t.Errorf("the reader told of changes %d times: this tests nothing", toldOf)
	}
}

// wired answers the lists of a script by way of a runtime and its client; what
// came of them is put into the script, where the model finds it. Inspections
// are the script's.
type wired struct {
	*script
	*cri.Client
	server *fakeruntime.Runtime
	toldOf int
}

func (w *wired) ListPodSandbox(ctx context.Context) ([]*cri.Sandbox, error) {
	w.serve()
	list, err := w.Client.ListPodSandbox(ctx)
	if err == nil {
		w.sandboxes = slices.Clone(list)
	}
	return list, err
}

func (w *wired) ListContainers(ctx context.Context) ([]*cri.Container, error) {
	list, err := w.Client.ListContainers(ctx)
	if err == nil {
		w.containers = slices.Clone(list)
		if w.SandboxChanges().Before != nil && w.ContainerChanges().Before != nil {
			w.toldOf++
		}
	}
	return list, err
}

func (w *wired) PodSandboxStatus(ctx context.Context, id string) (*cri.SandboxStatus, error) {
	return w.script.PodSandboxStatus(ctx, id)
}

func (w *wired) ContainerStatus(ctx context.Context, id string) (*cri.ContainerStatus, error) {
	return w.script.ContainerStatus(ctx, id)
}

// serve makes the runtime answer what the script says.
func (w *wired) serve() {
	w.server.ClearRaw()
	for _, s := range w.sandboxes {
		e := &runtimeapi.PodSandbox{Id: s.ID, CreatedAt: s.CreatedAt, Labels: map[string]string{"app": "x", "tier": "y"}, Annotations: map[string]string{"k": "v"}}
		if !s.Ready {
			e.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
		if s.HasMetadata {
			e.Metadata = &runtimeapi.PodSandboxMetadata{Name: s.Name, Uid: s.PodUID, Namespace: s.Namespace}
		}
		w.server.AddRawSandbox(e)
	}
	for _, c := range w.containers {
		e := &runtimeapi.Container{
			Id: c.ID, State: runtimeapi.ContainerState(c.State), CreatedAt: c.CreatedAt,
			Labels: map[string]string{
				"io.kubernetes.pod.uid": c.PodUID, "io.kubernetes.pod.name": c.PodName,
				"io.kubernetes.pod.namespace": c.PodNamespace, "io.kubernetes.container.name": c.Name,
			},
			Annotations: map[string]string{"k": "v", "l": "w"},
		}
		if c.HasMetadata {
			e.Metadata = &runtimeapi.ContainerMetadata{Name: c.Name}
		}
		if c.HasImage {
			e.Image = &runtimeapi.ImageSpec{Image: "i"}
		}
		w.server.AddRawContainer(e)
	}
	for op, rpc := range map[cri.Operation]string{cri.OpListPodSandbox: "ListPodSandbox", cri.OpListContainers: "ListContainers"} {
		if w.listErr[op] == nil {
			w.server.Set(rpc)
		} else {
			w.server.Set(rpc, fakeruntime.Error(codes.Unavailable, "scripted"))
		}
	}
}

// TestToldOfASandboxAndAContainerOfOneID: they have one record, so what the
// reader tells of each alone is not enough.
func TestToldOfASandboxAndAContainerOfOneID(t *testing.T) {
	h := newHistory(t, nil)
	h.on(&telling{script: h.rt})
	s1, c1 := sandbox("u", "s1", true), container("u", "c1", cri.StateRunning)
	sx, cx := sandbox("v", "x", true), container("v", "x", cri.StateRunning)
	exited := *cx
	exited.State = cri.StateExited
	for _, step := range []struct {
		sandboxes  []*cri.Sandbox
		containers []*cri.Container
	}{
		{[]*cri.Sandbox{s1}, []*cri.Container{c1}},
		{[]*cri.Sandbox{s1}, []*cri.Container{c1}},
		{[]*cri.Sandbox{s1, sx}, []*cri.Container{c1, cx}},
		{[]*cri.Sandbox{s1, sx}, []*cri.Container{c1, &exited}},
		{[]*cri.Sandbox{s1, sx}, []*cri.Container{c1}},
		{[]*cri.Sandbox{s1, sx}, []*cri.Container{c1, cx}},
		{[]*cri.Sandbox{s1}, []*cri.Container{c1, cx}},
		{[]*cri.Sandbox{s1}, []*cri.Container{c1}},
	} {
		h.rt.sandboxes, h.rt.containers = step.sandboxes, step.containers
		h.relist()
	}
	h.end()
}
