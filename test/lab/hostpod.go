//go:build e2e

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// HostPod is a pod of one container that looks at its node: what a DaemonSet's
// template says, as the kubelet hands it to the runtime.
type HostPod struct {
	Name, Image                string
	Args                       []string
	HostNetwork, HostPID       bool
	Mounts                     []HostMount
	User, Group                int64 // ids
	DropCapabilities           []string
	AddCapabilities            []string
	ReadOnlyRoot, NoPrivileges bool
	MemoryLimit                int64 // bytes
}

// HostMount is a path of the node in the pod.
type HostMount struct {
	Host, Container string
	ReadOnly        bool
	// Follows has mounts and unmounts of the node reach the container:
	// HostToContainer.
	Follows bool
}

// RunHostPod starts one, with the seccomp profile of the runtime. It returns
// when the container runs; what it writes is in the returned file, as the test
// sees it.
func (r *CRI) RunHostPod(s *Systemd, p HostPod) (c *Container, log string) {
	r.t.Helper()
	node := func(host bool) runtimeapi.NamespaceMode {
		if host {
			return runtimeapi.NamespaceMode_NODE
		}
		return runtimeapi.NamespaceMode_POD
	}
	pid := runtimeapi.NamespaceMode_CONTAINER
	if p.HostPID {
		pid = runtimeapi.NamespaceMode_NODE
	}
	namespaces := &runtimeapi.NamespaceOption{Network: node(p.HostNetwork), Pid: pid, Ipc: runtimeapi.NamespaceMode_POD}
	logs := "/var/log/pods/" + p.Name
	if err := os.MkdirAll(s.Path(logs), 0o755); err != nil {
		r.t.Fatal(err)
	}
	uid := fmt.Sprintf("%08x-e2e0-4000-8000-%012x", os.Getpid(), podCount.Add(1))
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: Namespace, Uid: uid},
		DnsConfig:    &runtimeapi.DNSConfig{Servers: []string{"127.0.0.1"}},
		LogDirectory: logs,
		Labels: map[string]string{
			"io.kubernetes.pod.name": p.Name, "io.kubernetes.pod.namespace": Namespace, "io.kubernetes.pod.uid": uid,
		},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    r.cgroup,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: namespaces},
		},
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), callLimit)
	defer cancel()
	sandbox, err := r.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		r.t.Fatalf("run pod %s: %v", p.Name, err)
	}
	container := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: p.Name},
		Image:    &runtimeapi.ImageSpec{Image: p.Image},
		Args:     p.Args,
		LogPath:  "0.log",
		Labels: map[string]string{
			"io.kubernetes.pod.name": p.Name, "io.kubernetes.pod.namespace": Namespace, "io.kubernetes.pod.uid": uid,
			"io.kubernetes.container.name": p.Name,
		},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: p.MemoryLimit},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: namespaces,
				Capabilities:     &runtimeapi.Capability{DropCapabilities: p.DropCapabilities, AddCapabilities: p.AddCapabilities},
				ReadonlyRootfs:   p.ReadOnlyRoot,
				NoNewPrivs:       p.NoPrivileges,
				RunAsUser:        &runtimeapi.Int64Value{Value: p.User},
				RunAsGroup:       &runtimeapi.Int64Value{Value: p.Group},
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
	for _, m := range p.Mounts {
		mount := &runtimeapi.Mount{HostPath: m.Host, ContainerPath: m.Container, Readonly: m.ReadOnly}
		if m.Follows {
			mount.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		}
		container.Mounts = append(container.Mounts, mount)
	}
	made, err := r.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox.GetPodSandboxId(), Config: container, SandboxConfig: config,
	})
	if err != nil {
		r.t.Fatalf("create the container of pod %s: %v", p.Name, err)
	}
	c = &Container{ID: made.GetContainerId(), Name: p.Name, Pod: &Pod{Name: p.Name, Namespace: Namespace, UID: uid, ID: sandbox.GetPodSandboxId(), r: r, config: config}, r: r}
	c.Start()
	return c, s.Path(filepath.Join(logs, "0.log"))
}
