//go:build e2e

package runtime

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/test/lab"
)

// Namespace is the Kubernetes namespace of the pods that tests make.
const Namespace = "plegd-e2e"

// callLimit is how long one call to a runtime may take; some wait for a client that does not read.
const callLimit = 2 * time.Minute

// CRI makes pods and containers on a runtime, in the way of a kubelet.
type CRI struct {
	t       testing.TB
	conn    *grpc.ClientConn
	runtime runtimeapi.RuntimeServiceClient
	image   string
	cgroup  string
}

// CRI returns a client of this containerd.
func (c *Containerd) CRI(t testing.TB) *CRI {
	t.Helper()
	return NewCRI(t, c.Socket, "/"+c.Cgroup)
}

// In returns the client with another parent for its pods' cgroups.
func (r *CRI) In(cgroup string) *CRI {
	other := *r
	other.cgroup = cgroup
	return &other
}

// NewCRI returns a client of the runtime that serves a socket and has the pause image. Its pods are below a cgroup.
func NewCRI(t testing.TB, socket, cgroup string) *CRI {
	t.Helper()
	r, err := dialCRI(socket)
	lab.Must(t, err)
	r.t, r.image, r.cgroup = t, PauseImage, cgroup
	t.Cleanup(func() { lab.Close(r.conn) })
	return r
}

// dialCRI opens a connection that is back soon after the runtime is.
func dialCRI(socket string) (*CRI, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return nil, err
	}
	return &CRI{conn: conn, runtime: runtimeapi.NewRuntimeServiceClient(conn)}, nil
}

func (r *CRI) version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	return r.runtime.Version(ctx, &runtimeapi.VersionRequest{})
}

// hasImage asks a socket for an image.
func hasImage(socket, image string) error {
	return ask(socket, 2*time.Second, func(ctx context.Context, r *CRI) error {
		answer, err := runtimeapi.NewImageServiceClient(r.conn).ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
		if err == nil && answer.GetImage() == nil {
			err = fmt.Errorf("no image %s", image)
		}
		return err
	})
}

// PullImage pulls an image.
func (r *CRI) PullImage(ctx context.Context, image string) error {
	_, err := runtimeapi.NewImageServiceClient(r.conn).PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	return err
}

// podCount makes the names of pods differ over all the tests of a run.
var podCount atomic.Int64

// Pod is a pod that a test has made.
type Pod struct {
	Name, Namespace, UID string
	// ID is its sandbox's.
	ID string

	r      *CRI
	config *runtimeapi.PodSandboxConfig
}

// Container is a container that a test has made.
type Container struct {
	ID, Name string
	Pod      *Pod

	r *CRI
}

// RunPod makes a pod in the host's network, so that no network plugin is needed, with a sandbox that runs.
func (r *CRI) RunPod() *Pod {
	r.t.Helper()
	ctx, cancel := r.call()
	defer cancel()
	p, err := r.TryRunPod(ctx)
	lab.Must(r.t, err)
	return p
}

// TryRunPod is RunPod for a runtime that may be unable to.
func (r *CRI) TryRunPod(ctx context.Context) (*Pod, error) { return r.tryPod(ctx, namespaces()) }

// TryPodInNetwork asks for a pod with a network of its own, by the runtime's network plugin.
func (r *CRI) TryPodInNetwork(ctx context.Context) (*Pod, error) { return r.tryPod(ctx, nil) }

// RunPodInNetwork is TryPodInNetwork, and removes what came of it.
func (r *CRI) RunPodInNetwork(ctx context.Context) error {
	p, err := r.TryPodInNetwork(ctx)
	if err == nil {
		p.Discard()
	}
	return err
}

func (r *CRI) tryPod(ctx context.Context, namespaces *runtimeapi.NamespaceOption) (*Pod, error) {
	p := r.newPod(fmt.Sprintf("e2e-%d-%d", os.Getpid(), podCount.Add(1)))
	p.config.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: namespaces}
	return p, p.Run(ctx)
}

// newPod is a pod that does not run yet.
func (r *CRI) newPod(name string) *Pod {
	p := &Pod{Name: name, Namespace: Namespace, UID: fmt.Sprintf("%08x-e2e0-4000-8000-%012x", os.Getpid(), podCount.Add(1)), r: r}
	p.config = &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: p.UID},
		// Given, or the runtime would want the machine's resolv.conf, which may be a link into /run.
		DnsConfig: &runtimeapi.DNSConfig{Servers: []string{"127.0.0.1"}},
		Labels:    p.labels(),
		Annotations: map[string]string{
			"kubernetes.io/config.seen":   time.Now().Format(time.RFC3339Nano),
			"kubernetes.io/config.source": "api",
		},
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: r.cgroup},
	}
	return p
}

// Run runs the pod's sandbox, as another attempt each time.
func (p *Pod) Run(ctx context.Context) error {
	p.config.Metadata.Attempt++
	answer, err := p.r.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		return fmt.Errorf("run pod %s: %w", p.Name, err)
	}
	p.ID = answer.GetPodSandboxId()
	return nil
}

// namespaces are those of a pod in the host's network and of its containers.
func namespaces() *runtimeapi.NamespaceOption {
	return &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_NODE,
		Pid:     runtimeapi.NamespaceMode_CONTAINER,
		Ipc:     runtimeapi.NamespaceMode_POD,
	}
}

// RunPods makes pods, each with as many containers, two at a time.
func (r *CRI) RunPods(pods, containers int) []*Pod {
	r.t.Helper()
	made := make([]*Pod, pods)
	r.AtOnce(2, pods, func(i int) {
		made[i] = r.RunPod()
		for range containers {
			made[i].RunContainer("app")
		}
	})
	return made
}

// Two calls f with 0 to n-1, two calls at a time, and returns when all have returned.
func Two(n int, f func(int)) { atOnce(2, n, f) }

// AtOnce is Two with so many calls at a time.
func (r *CRI) AtOnce(lanes, n int, f func(int)) {
	r.t.Helper()
	atOnce(lanes, n, f)
	if r.t.Failed() { // in another goroutine, which ended that one only
		r.t.FailNow()
	}
}

func atOnce(lanes, n int, f func(int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range lanes {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	all.Wait()
}

func (p *Pod) labels() map[string]string {
	return map[string]string{
		"app":                         "e2e",
		"io.kubernetes.pod.name":      p.Name,
		"io.kubernetes.pod.namespace": p.Namespace,
		"io.kubernetes.pod.uid":       p.UID,
	}
}

// CreateContainer makes a container that is not started. The arguments are those of test/images/pause.
func (p *Pod) CreateContainer(name string, args ...string) *Container {
	p.r.t.Helper()
	return p.mustCreate(&runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: name}, Args: args})
}

// CreateHeavyContainer makes a container, not started, with so many bytes of
// annotations, which every list answers with.
func (p *Pod) CreateHeavyContainer(size int) *Container {
	p.r.t.Helper()
	return p.mustCreate(&runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: "heavy"},
		Annotations: map[string]string{"heavy": strings.Repeat("h", size)},
	})
}

// TryContainer asks for a container with a mount, and removes what came of it.
func (p *Pod) TryContainer(ctx context.Context, mount *runtimeapi.Mount) error {
	c, err := p.create(ctx, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "mounting"}, Mounts: []*runtimeapi.Mount{mount},
	})
	if err == nil {
		c.Remove()
	}
	return err
}

func (p *Pod) mustCreate(config *runtimeapi.ContainerConfig) *Container {
	p.r.t.Helper()
	ctx, cancel := p.r.call()
	defer cancel()
	c, err := p.create(ctx, config)
	lab.Must(p.r.t, err)
	return c
}

// create makes a container, as the kubelet asks for one. Each gets an attempt of its own, as each restart does.
func (p *Pod) create(ctx context.Context, config *runtimeapi.ContainerConfig) (*Container, error) {
	name := config.Metadata.Name
	config.Metadata.Attempt = uint32(podCount.Add(1))
	config.Image = &runtimeapi.ImageSpec{Image: p.r.image, UserSpecifiedImage: p.r.image}
	config.Labels = p.labels()
	config.Labels["io.kubernetes.container.name"] = name
	if config.Linux == nil {
		// CRI-O needs the namespaces again.
		config.Linux = &runtimeapi.LinuxContainerConfig{
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: namespaces()},
		}
	}
	if config.Annotations == nil {
		config.Annotations = map[string]string{
			"io.kubernetes.container.hash": "5f3c1a2b", "io.kubernetes.container.restartCount": "0",
			"io.kubernetes.container.terminationMessagePath": "/dev/termination-log", "io.kubernetes.pod.terminationGracePeriod": "30",
		}
	}
	answer, err := p.r.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.ID, Config: config, SandboxConfig: p.config,
	})
	if err != nil {
		return nil, fmt.Errorf("create container %s in pod %s: %w", name, p.Name, err)
	}
	return &Container{ID: answer.GetContainerId(), Name: name, Pod: p, r: p.r}, nil
}

// RunContainer makes a container and starts it.
func (p *Pod) RunContainer(name string, args ...string) *Container {
	p.r.t.Helper()
	c := p.CreateContainer(name, args...)
	c.Start()
	return c
}

// do makes one call, which must succeed.
func do[Q, A any](r *CRI, what string, call func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) {
	r.t.Helper()
	ctx, cancel := r.call()
	defer cancel()
	if _, err := call(ctx, request); err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

// Start starts a created container.
func (c *Container) Start() {
	c.r.t.Helper()
	do(c.r, "start container "+c.ID, c.r.runtime.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: c.ID})
}

// FinishedAt is when the container exited, by the runtime's account; zero while it has not.
func (c *Container) FinishedAt() time.Time {
	c.r.t.Helper()
	ctx, cancel := c.r.call()
	defer cancel()
	s, err := c.r.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
	if err != nil {
		c.r.t.Fatalf("ask for container %s: %v", c.ID, err)
	}
	if s.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		return time.Time{}
	}
	return time.Unix(0, s.GetStatus().GetFinishedAt())
}

// Containers counts the runtime's containers by their state, as pleg_running_containers names it.
func (r *CRI) Containers() map[string]int {
	r.t.Helper()
	states, err := r.States(callLimit)
	lab.Must(r.t, err)
	counts := map[string]int{}
	for _, state := range states {
		counts[strings.ToLower(state)]++
	}
	return counts
}

// Stop stops a container by SIGTERM: it exits with the code that it was made with.
func (c *Container) Stop() {
	c.r.t.Helper()
	do(c.r, "stop container "+c.ID, c.r.runtime.StopContainer,
		&runtimeapi.StopContainerRequest{ContainerId: c.ID, Timeout: 20})
}

// Remove removes a container, one that runs too.
func (c *Container) Remove() {
	c.r.t.Helper()
	do(c.r, "remove container "+c.ID, c.r.runtime.RemoveContainer,
		&runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
}

// Stop stops a pod's sandbox and its containers.
func (p *Pod) Stop() {
	p.r.t.Helper()
	do(p.r, "stop pod "+p.Name, p.r.runtime.StopPodSandbox, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.ID})
}

// Remove removes a pod's sandbox and its containers.
func (p *Pod) Remove() {
	p.r.t.Helper()
	do(p.r, "remove pod "+p.Name, p.r.runtime.RemovePodSandbox, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.ID})
}

// Discard removes what may have been removed already.
func (p *Pod) Discard() {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	_, _ = p.r.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.ID})
	_, _ = p.r.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.ID})
}

func (r *CRI) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.t.Context(), callLimit)
}
