package cri

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The labels that the kubelet sets on every container
// (k8s.io/kubelet/pkg/types/labels.go).
const (
	labelPodUID       = "io.kubernetes.pod.uid"
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"
)

func wholeSandbox(raw []byte, slot int) (*Sandbox, error) {
	var p runtimeapi.PodSandbox
	if err := proto.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("read a sandbox: %w", err)
	}
	m := p.GetMetadata()
	return &Sandbox{
		Slot:        slot,
		ID:          p.GetId(),
		HasMetadata: m != nil,
		PodUID:      m.GetUid(),
		Name:        m.GetName(),
		Namespace:   m.GetNamespace(),
		Attempt:     m.GetAttempt(),
		Ready:       p.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:   p.GetCreatedAt(),
	}, nil
}

func wholeContainer(raw []byte, slot int) (*Container, error) {
	var p runtimeapi.Container
	if err := proto.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("read a container: %w", err)
	}
	m := p.GetMetadata()
	return &Container{
		Slot:         slot,
		ID:           p.GetId(),
		SandboxID:    p.GetPodSandboxId(),
		HasMetadata:  m != nil,
		Name:         m.GetName(),
		Attempt:      m.GetAttempt(),
		HasImage:     p.GetImage() != nil,
		PodUID:       p.GetLabels()[labelPodUID],
		PodName:      p.GetLabels()[labelPodName],
		PodNamespace: p.GetLabels()[labelPodNamespace],
		State:        stateOf(p.GetState()),
		CreatedAt:    p.GetCreatedAt(),
	}, nil
}

// stateOf maps a state as the kubelet does: a number it does not know is
// unknown.
func stateOf(s runtimeapi.ContainerState) State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return StateCreated
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return StateRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return StateExited
	default:
		return StateUnknown
	}
}
