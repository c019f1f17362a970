package cri

import (
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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
	maxName    = 1 << 10
	maxMessage = 4 << 10
)

// clip keeps the beginning of a text, in memory of its own.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(strings.Clone(s[:most]), "")
}

func sandboxReader() *listReader[Sandbox] { return newReader(5, sandboxOf) }

func containerReader() *listReader[Container] { return newReader(8, containerOf) }

func sandboxOf(p *runtimeapi.PodSandbox) *Sandbox {
	m := p.GetMetadata()
	return &Sandbox{
		ID:          clip(p.GetId(), maxName),
		HasMetadata: m != nil,
		PodUID:      clip(m.GetUid(), maxName),
		Name:        clip(m.GetName(), maxName),
		Namespace:   clip(m.GetNamespace(), maxName),
		Ready:       p.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:   p.GetCreatedAt(),
	}
}

func containerOf(p *runtimeapi.Container) *Container {
	m := p.GetMetadata()
	return &Container{
		ID:           clip(p.GetId(), maxName),
		SandboxID:    clip(p.GetPodSandboxId(), maxName),
		HasMetadata:  m != nil,
		Name:         clip(m.GetName(), maxName),
		HasImage:     p.GetImage() != nil,
		PodUID:       clip(p.GetLabels()[labelPodUID], maxName),
		PodName:      clip(p.GetLabels()[labelPodName], maxName),
		PodNamespace: clip(p.GetLabels()[labelPodNamespace], maxName),
		State:        State(min(uint32(p.GetState()), uint32(StateUnknown))), // as the kubelet maps other numbers
		CreatedAt:    p.GetCreatedAt(),
	}
}
