package fakeruntime

import (
	"fmt"
	"maps"
	"strconv"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The labels and annotations that the kubelet sets (kubelet/types/labels.go,
// kuberuntime/labels.go): a runtime only hands them back.
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"

	annotationConfigSeen   = "kubernetes.io/config.seen"
	annotationRestartCount = "io.kubernetes.container.restartCount"
)

// containerName names the i-th container of a pod that has no names of its own.
func containerName(i int) string {
	if i == 0 {
		return "server"
	}
	return "sidecar-" + strconv.Itoa(i)
}

func (m *Model) newID() string {
	return fmt.Sprintf("%016x%016x%016x%016x", m.ids.Uint64(), m.ids.Uint64(), m.ids.Uint64(), m.ids.Uint64())
}

func (m *Model) newUID() string {
	a, b := m.ids.Uint64(), m.ids.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>52, b&0xffffffffffff)
}

// suffix is a random part of a name in the alphabet that Kubernetes uses.
func (m *Model) suffix(n int) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[m.ids.IntN(len(alphabet))]
	}
	return string(b)
}

// fillLabels gives a pod the labels and annotations of an ordinary deployment.
func (m *Model) fillLabels(p *pod) {
	p.spec.labels = map[string]string{
		"app.kubernetes.io/name":     "service",
		"app.kubernetes.io/instance": "production",
		"app.kubernetes.io/version":  "v1.27.3",
		"pod-template-hash":          m.suffix(10),
	}
	p.spec.annotations = map[string]string{
		"checksum/config":                         m.newID(),
		"kubectl.kubernetes.io/default-container": "server",
		"kubectl.kubernetes.io/restartedAt":       "2026-11-20T08:15:30Z",
		"prometheus.io/scrape":                    "true",
		"prometheus.io/port":                      "8080",
	}
}

func (m *Model) sandboxEntry(p *pod, attempt uint32) *cri.PodSandbox {
	labels := maps.Clone(p.spec.labels)
	labels[labelPodName] = p.spec.Name
	labels[labelPodNamespace] = p.spec.Namespace
	labels[labelPodUID] = p.spec.uid

	annotations := maps.Clone(p.spec.annotations)
	annotations[annotationConfigSeen] = p.seen
	annotations["kubernetes.io/config.source"] = "api"
	return &cri.PodSandbox{
		Id: m.newID(),
		Metadata: &cri.PodSandboxMetadata{
			Name: p.spec.Name, Uid: p.spec.uid, Namespace: p.spec.Namespace, Attempt: attempt,
		},
		State:       cri.PodSandboxState_SANDBOX_READY,
		CreatedAt:   m.tick(),
		Labels:      labels,
		Annotations: annotations,
	}
}

func (m *Model) containerEntry(p *pod, name string, attempt uint32) *cri.Container {
	var sandboxID string
	if n := len(p.sandboxes); n > 0 {
		sandboxID = p.sandboxes[n-1].entry.Id
	}
	// The same image for the same name, as on a real node.
	image := fmt.Sprintf("sha256:%064x", []byte(name)[:min(len(name), 32)])
	return &cri.Container{
		Id:           m.newID(),
		PodSandboxId: sandboxID,
		Metadata:     &cri.ContainerMetadata{Name: name, Attempt: attempt},
		Image: &cri.ImageSpec{
			Image:              image,
			UserSpecifiedImage: "registry.example.com/payments/" + name + ":v1.27.3",
		},
		ImageRef:  image,
		State:     cri.ContainerState_CONTAINER_CREATED,
		CreatedAt: m.tick(),
		Labels: map[string]string{
			labelContainerName: name,
			labelPodName:       p.spec.Name,
			labelPodNamespace:  p.spec.Namespace,
			labelPodUID:        p.spec.uid,
		},
		Annotations: map[string]string{
			annotationRestartCount:                             strconv.Itoa(int(attempt)),
			"io.kubernetes.container.hash":                     fmt.Sprintf("%08x", m.ids.Uint32()),
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.pod.terminationGracePeriod":         "30",
			"io.kubernetes.container.ports": `[{"name":"http","containerPort":8080,"protocol":"TCP"},` +
				`{"name":"metrics","containerPort":9090,"protocol":"TCP"}]`,
		},
		ImageId: image,
	}
}

// sandboxStatus is what PodSandboxStatus says of an entry.
func sandboxStatus(s *cri.PodSandbox, ips []string) *cri.PodSandboxStatus {
	status := &cri.PodSandboxStatus{
		Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt,
		Network: &cri.PodSandboxNetworkStatus{},
		Linux: &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{
			Options: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER},
		}},
		Labels: s.Labels, Annotations: s.Annotations, RuntimeHandler: s.RuntimeHandler,
	}
	if len(ips) > 0 {
		status.Network.Ip = ips[0]
		for _, ip := range ips[1:] {
			status.Network.AdditionalIps = append(status.Network.AdditionalIps, &cri.PodIP{Ip: ip})
		}
	}
	return status
}

// status is what ContainerStatus says of a container.
func (c *container) status() *cri.ContainerStatus {
	status := containerStatus(c.entry)
	status.StartedAt, status.FinishedAt = c.started, c.finished
	status.ExitCode, status.Reason, status.Message = c.exitCode, c.reason, c.message
	return status
}

func containerStatus(c *cri.Container) *cri.ContainerStatus {
	logPath := fmt.Sprintf("/var/log/pods/%s_%s_%s/%s/%d.log", c.Labels[labelPodNamespace], c.Labels[labelPodName],
		c.Labels[labelPodUID], c.GetMetadata().GetName(), c.GetMetadata().GetAttempt())
	return &cri.ContainerStatus{
		Id: c.Id, Metadata: c.Metadata, State: c.State, CreatedAt: c.CreatedAt,
		Image: c.Image, ImageRef: c.ImageRef, ImageId: c.ImageId,
		Labels: c.Labels, Annotations: c.Annotations, LogPath: logPath,
	}
}
