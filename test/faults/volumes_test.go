//go:build e2e

package faults

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// volumeFaults are those of file systems of pods, which fail the starts of their containers and of no pod.
var volumeFaults = []fault{
	{
		name: "a pod's logs: no inodes", on: onContainerd, want: health.PodStartsFailing, goal: 25 * time.Second, limit: 40 * time.Second, fresh: true, back: 20 * time.Second,
		configure: func(b *bench) { b.disk = b.SmallDir(b.file("podlogs")) },
		make: func(b *bench) func() {
			start := b.startsIn(b.disk.Path())
			b.must(start())
			undo := b.disk.FillInodes()
			b.injected = time.Now()
			for range 3 {
				if start() == nil {
					b.t.Error("a container with a log could be started")
				}
				time.Sleep(1500 * time.Millisecond)
			}
			return func() {
				undo()
				b.must(start()) // it is over
			}
		},
		evidence: constant("of 4096 inodes free"),
		culprit:  func(b *bench) facts.Link { return facts.Link{Kind: facts.KindMount, Name: b.disk.Path()} },
		next:     func(b *bench) string { return "Make " + b.disk.Path() + " writable again" },
	},
	{
		// Without the kubelet's metrics it is seen within a minute.
		name: "the server of a pod's FUSE volume has ended", on: onContainerd, want: health.PodStartsFailing, goal: 25 * time.Second, limit: 40 * time.Second, fresh: true, back: 20 * time.Second,
		prepare: func(b *bench) { b.serveFailedCreates() },
		make: func(b *bench) func() {
			dir := b.volume()
			b.must(exec.Command("mkdir", "-p", dir).Run())
			b.DeadFUSE(dir)()
			b.kubelet.Store(false)
			return func() {
				b.kubelet.Store(true)
				out, err := exec.Command("nsenter", "--mount", "--pid", "--target", fmt.Sprint(b.Namespace.Pid()), "umount", dir).CombinedOutput()
				if err != nil {
					b.t.Errorf("umount: %s", out)
				}
			}
		},
		evidence: constant("its server is gone (transport endpoint is not connected)"),
		culprit:  func(b *bench) facts.Link { return facts.Link{Kind: facts.KindMount, Name: b.volume()} },
		next:     func(b *bench) string { return "Unmount it, `umount " + b.volume() + "`" },
	},
}

// volume is where a kubelet mounts the volume of a pod.
func (b *bench) volume() string {
	return b.file(filepath.Join("kubelet/pods", b.pods[0].UID, "volumes/kubernetes.io~csi/fuse/mount"))
}

// serveFailedCreates serves the metrics of a kubelet: while it is not well each of its calls that create containers fails
// at once.
func (b *bench) serveFailedCreates() {
	b.kubelet = &atomic.Bool{}
	b.kubelet.Store(true)
	var failed, ended atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := ended.Add(1)
		if !b.kubelet.Load() {
			failed.Add(1)
		}
		const operation = `{operation_type="create_container"}`
		fmt.Fprintf(w, "kubelet_pleg_last_seen_seconds %d\n", time.Now().Unix())
		fmt.Fprintf(w, "kubelet_working_pods{config=\"desired\",lifecycle=\"sync\"} 0\n")
		fmt.Fprintf(w, "kubelet_runtime_operations_total%s %d\n", operation, n)
		fmt.Fprintf(w, "kubelet_runtime_operations_errors_total%s %d\n", operation, failed.Load())
	}))
	b.t.Cleanup(s.Close)
	b.flags = []string{"--kubelet-metrics-url=" + s.URL + "/metrics"}
}

// startsIn makes a pod whose containers have their logs in a directory, and returns what starts a container of it.
func (b *bench) startsIn(logs string) (start func(command ...string) error) {
	b.t.Helper()
	conn, err := grpc.NewClient("unix:"+b.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	b.must(err)
	b.t.Cleanup(func() { lab.Close(conn) })
	client := runtimeapi.NewRuntimeServiceClient(conn)
	namespaces := &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER}
	labels := map[string]string{"io.kubernetes.pod.name": "logged", "io.kubernetes.pod.namespace": runtime.Namespace, "io.kubernetes.pod.uid": "logged"}
	pod := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "logged", Namespace: runtime.Namespace, Uid: "logged"},
		DnsConfig:    &runtimeapi.DNSConfig{Servers: []string{"127.0.0.1"}},
		LogDirectory: logs, Labels: labels,
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/" + b.Cgroup, SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: namespaces}},
	}
	ctx := b.t.Context()
	sandbox, err := client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: pod})
	b.must(err)
	b.t.Cleanup(func() {
		_, _ = client.RemovePodSandbox(context.Background(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox.GetPodSandboxId()})
	})
	attempt := uint32(0)
	return func(command ...string) error {
		attempt++
		container, err := client.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
			PodSandboxId: sandbox.GetPodSandboxId(), SandboxConfig: pod,
			Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: attempt},
				Image:    &runtimeapi.ImageSpec{Image: runtime.PauseImage, UserSpecifiedImage: runtime.PauseImage}, LogPath: fmt.Sprintf("%d.log", attempt), Labels: labels, Command: command,
				Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: namespaces}},
			},
		})
		b.must(err)
		_, err = client.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: container.GetContainerId()})
		return err
	}
}
