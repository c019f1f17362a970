package cri

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/plain"
)

// The labels that the kubelet sets on every container
// (k8s.io/kubelet/pkg/types/labels.go).
const (
	labelPodUID       = "io.kubernetes.pod.uid"
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"
)

// The maximum size in bytes of an id or a name (Kubernetes allows 253 for a name; ids have
// 64) and of a message. Longer values are truncated so that memory use stays bounded.
const (
	maxName    = 256
	maxMessage = 4 << 10
)

func sandboxReader() *listReader { return newReader(5, sandboxOf) }

// containerReader returns a reader of containers, whose sandboxes another one has read.
func containerReader(sandboxes *listReader) *listReader {
	return newReader(8, func(p *runtimeapi.Container) *Entry {
		e := containerOf(p)
		sandboxes.share(e)
		return e
	})
}

func sandboxOf(p *runtimeapi.PodSandbox) *Entry {
	m := p.GetMetadata()
	id := plain.CutTo(p.GetId(), maxName)
	e := &Entry{
		Sandbox:      true,
		ID:           id,
		SandboxID:    id,
		Ignored:      m == nil || id == "",
		State:        StateExited,
		CreatedAt:    max(p.GetCreatedAt(), 0),
		PodUID:       plain.CutTo(m.GetUid(), maxName),
		PodName:      plain.CutTo(m.GetName(), maxName),
		PodNamespace: plain.CutTo(m.GetNamespace(), maxName),
	}
	if p.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
		e.State = StateRunning
	}
	return e
}

func containerOf(p *runtimeapi.Container) *Entry {
	m := p.GetMetadata()
	return &Entry{
		ID:           plain.CutTo(p.GetId(), maxName),
		SandboxID:    plain.CutTo(p.GetPodSandboxId(), maxName),
		Name:         plain.CutTo(m.GetName(), maxName),
		PodUID:       plain.CutTo(p.GetLabels()[labelPodUID], maxName),
		PodName:      plain.CutTo(p.GetLabels()[labelPodName], maxName),
		PodNamespace: plain.CutTo(p.GetLabels()[labelPodNamespace], maxName),
		Ignored:      p.GetId() == "" || m == nil || p.GetImage() == nil,
		State:        State(min(uint32(p.GetState()), uint32(StateUnknown))), // as the kubelet maps other numbers
		CreatedAt:    max(p.GetCreatedAt(), 0),
	}
}
