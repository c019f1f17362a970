package fakeruntime

import (
	"fmt"
	"maps"
	"strconv"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The labels and annotations that the kubelet sets (kubelet/types/labels.go,
// kuberuntime/labels.go): a runtime only hands them back.
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"

	annotationConfigSeen   = "kubernetes.io/config.seen"
	annotationConfigSource = "kubernetes.io/config.source"

	annotationContainerHash    = "io.kubernetes.container.hash"
	annotationRestartCount     = "io.kubernetes.container.restartCount"
	annotationTerminationPath  = "io.kubernetes.container.terminationMessagePath"
	annotationTerminationPol   = "io.kubernetes.container.terminationMessagePolicy"
	annotationGracePeriod      = "io.kubernetes.pod.terminationGracePeriod"
	annotationContainerPorts   = "io.kubernetes.container.ports"
	defaultTerminationLogPath  = "/dev/termination-log"
	defaultTerminationLogRules = "File"
)

// containerName names the i-th container of a pod that has no names of its own.
func containerName(i int) string {
	if i == 0 {
		return "server"
	}
	return "sidecar-" + strconv.Itoa(i)
}

func (m *Model) sandboxEntry(p *pod, attempt uint32) *runtimeapi.PodSandbox {
	labels := maps.Clone(p.spec.Labels)
	labels[labelPodName] = p.spec.Name
	labels[labelPodNamespace] = p.spec.Namespace
	labels[labelPodUID] = p.spec.UID

	annotations := maps.Clone(p.spec.Annotations)
	annotations[annotationConfigSeen] = p.seen
	annotations[annotationConfigSource] = "api"
	return &runtimeapi.PodSandbox{
		Id: m.newID(),
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: p.spec.Name, Uid: p.spec.UID, Namespace: p.spec.Namespace, Attempt: attempt,
		},
		State:       runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:   m.tick(),
		Labels:      labels,
		Annotations: annotations,
	}
}

func (m *Model) containerEntry(p *pod, name string, attempt uint32) *runtimeapi.Container {
	var sandboxID string
	if n := len(p.sandboxes); n > 0 {
		sandboxID = p.sandboxes[n-1].entry.Id
	}
	// The same image for the same name, as on a real node.
	image := fmt.Sprintf("sha256:%064x", []byte(name)[:min(len(name), 32)])
	return &runtimeapi.Container{
		Id:           m.newID(),
		PodSandboxId: sandboxID,
		Metadata:     &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
		Image: &runtimeapi.ImageSpec{
			Image:              image,
			UserSpecifiedImage: "registry.example.com/payments/" + name + ":v1.27.3",
		},
		ImageRef:  image,
		State:     runtimeapi.ContainerState_CONTAINER_CREATED,
		CreatedAt: m.tick(),
		Labels: map[string]string{
			labelContainerName: name,
			labelPodName:       p.spec.Name,
			labelPodNamespace:  p.spec.Namespace,
			labelPodUID:        p.spec.UID,
		},
		Annotations: map[string]string{
			annotationContainerHash:   fmt.Sprintf("%08x", m.ids.Uint32()),
			annotationRestartCount:    strconv.Itoa(int(attempt)),
			annotationTerminationPath: defaultTerminationLogPath,
			annotationTerminationPol:  defaultTerminationLogRules,
			annotationGracePeriod:     "30",
			annotationContainerPorts: `[{"name":"http","containerPort":8080,"protocol":"TCP"},` +
				`{"name":"metrics","containerPort":9090,"protocol":"TCP"}]`,
		},
		ImageId: image,
	}
}

// withContainerState returns the entry with another state. The maps are shared:
// labels and annotations of an id never change in CRI.
func withContainerState(c *runtimeapi.Container, state runtimeapi.ContainerState) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id: c.Id, PodSandboxId: c.PodSandboxId, Metadata: c.Metadata, Image: c.Image, ImageRef: c.ImageRef,
		State: state, CreatedAt: c.CreatedAt, Labels: c.Labels, Annotations: c.Annotations, ImageId: c.ImageId,
	}
}

func withSandboxState(s *runtimeapi.PodSandbox, state runtimeapi.PodSandboxState) *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{
		Id: s.Id, Metadata: s.Metadata, State: state, CreatedAt: s.CreatedAt,
		Labels: s.Labels, Annotations: s.Annotations, RuntimeHandler: s.RuntimeHandler,
	}
}

// sandboxStatus is what PodSandboxStatus says of an entry.
func sandboxStatus(s *runtimeapi.PodSandbox, ips []string) *runtimeapi.PodSandboxStatus {
	status := &runtimeapi.PodSandboxStatus{
		Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt,
		Network: &runtimeapi.PodSandboxNetworkStatus{},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
		Labels: s.Labels, Annotations: s.Annotations, RuntimeHandler: s.RuntimeHandler,
	}
	if len(ips) > 0 {
		status.Network.Ip = ips[0]
		for _, ip := range ips[1:] {
			status.Network.AdditionalIps = append(status.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
		}
	}
	return status
}

// status is what ContainerStatus says of a container.
func (c *container) status() *runtimeapi.ContainerStatus {
	status := containerStatus(c.entry)
	status.StartedAt, status.FinishedAt = c.started, c.finished
	status.ExitCode, status.Reason, status.Message = c.exitCode, c.reason, c.message
	return status
}

func containerStatus(c *runtimeapi.Container) *runtimeapi.ContainerStatus {
	logPath := fmt.Sprintf("/var/log/pods/%s_%s_%s/%s/%d.log", c.Labels[labelPodNamespace], c.Labels[labelPodName],
		c.Labels[labelPodUID], c.GetMetadata().GetName(), c.GetMetadata().GetAttempt())
	return &runtimeapi.ContainerStatus{
		Id: c.Id, Metadata: c.Metadata, State: c.State, CreatedAt: c.CreatedAt,
		Image: c.Image, ImageRef: c.ImageRef, ImageId: c.ImageId,
		Labels: c.Labels, Annotations: c.Annotations, LogPath: logPath,
	}
}
