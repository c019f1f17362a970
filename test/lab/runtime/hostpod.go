//go:build e2e

package runtime

import (
	"context"
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/test/lab"
)

// HostPod is a pod of one container that looks at its node: what a DaemonSet's
// template says, as the kubelet hands it to the runtime.
type HostPod struct {
	Name, Image                string
	Args                       []string
	Env                        []EnvVar
	HostNetwork, HostPID       bool
	Mounts                     []HostMount
	User, Group                int64 // ids
	DropCapabilities           []string
	AddCapabilities            []string
	ReadOnlyRoot, NoPrivileges bool
	MemoryLimit                int64 // bytes
}

// EnvVar is an environment variable of a container.
type EnvVar struct{ Name, Value string }

// HostMount is a path of the node in the pod.
type HostMount struct {
	Host, Container string
	ReadOnly        bool
	// Follows has mounts and unmounts of the node reach the container: HostToContainer.
	Follows bool
}

// RunHostPod starts one, with the seccomp profile of the runtime. It returns when the container runs; its output is
// in the returned file, as the test sees it. node is the node's file system.
func (r *CRI) RunHostPod(node interface{ Path(string) string }, p HostPod) (c *Container, log string) {
	r.t.Helper()
	of := func(host bool) runtimeapi.NamespaceMode {
		if host {
			return runtimeapi.NamespaceMode_NODE
		}
		return runtimeapi.NamespaceMode_POD
	}
	pid := runtimeapi.NamespaceMode_CONTAINER
	if p.HostPID {
		pid = runtimeapi.NamespaceMode_NODE
	}
	namespaces := &runtimeapi.NamespaceOption{Network: of(p.HostNetwork), Pid: pid, Ipc: runtimeapi.NamespaceMode_POD}
	logs := "/var/log/pods/" + p.Name
	lab.Must(r.t, os.MkdirAll(node.Path(logs), 0o755))
	pod := r.newPod(p.Name)
	pod.config.LogDirectory = logs
	pod.config.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: namespaces}
	ctx, cancel := context.WithTimeout(r.t.Context(), callLimit)
	defer cancel()
	lab.Must(r.t, pod.Run(ctx))
	image := *r
	image.image = p.Image
	pod.r = &image
	container := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: p.Name},
		Args:     p.Args,
		LogPath:  "0.log",
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
	for _, e := range p.Env {
		container.Envs = append(container.Envs, &runtimeapi.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	for _, m := range p.Mounts {
		mount := &runtimeapi.Mount{HostPath: m.Host, ContainerPath: m.Container, Readonly: m.ReadOnly}
		if m.Follows {
			mount.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		}
		container.Mounts = append(container.Mounts, mount)
	}
	c, err := pod.create(ctx, container)
	lab.Must(r.t, err)
	c.Start()
	return c, node.Path(filepath.Join(logs, "0.log"))
}
