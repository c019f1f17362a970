//go:build e2e

package faults

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// unnoticedFaults are those for which the runtime does not take note of the end of a container.
var unnoticedFaults = []fault{{
	name: "the reader of a container's log, a FIFO, is stopped", on: onContainerd, want: health.RuntimePeerStuck, goal: 60 * time.Second,
	limit: 75 * time.Second, fresh: true, // the table of processes may be 30 s old when the process ends
	prepare: func(b *bench) {
		log := b.file("agent.log")
		b.must(syscall.Mkfifo(log, 0o600))
		agent := exec.Command("cat", log)
		b.must(agent.Start())
		b.t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
		b.other = agent.Process.Pid
		b.logging(log)
	},
	make: func(b *bench) func() {
		b.plegd.AwaitRelists(time.Minute, 12) // a pass of the ledger has seen the container's process
		b.must(syscall.Kill(b.other, syscall.SIGSTOP))
		b.fillOutput()
		b.injected = time.Now()
		wait := inBackground(b.logged.stop)
		return func() {
			b.must(syscall.Kill(b.other, syscall.SIGKILL))
			wait()
		}
	},
	culprit:  theOther,
	evidence: func(b *bench) string { return b.file("agent.log") },
	next:     func(b *bench) string { return fmt.Sprintf("kill -CONT %d", b.other) },
}}

// loggedContainer is a container with a log.
type loggedContainer struct {
	client   runtimeapi.RuntimeServiceClient
	id, name string
}

// logging runs a container with a log in the first pod.
func (b *bench) logging(log string) {
	b.t.Helper()
	conn, err := grpc.NewClient("unix://"+b.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	b.must(err)
	b.t.Cleanup(func() { lab.Close(conn) })
	c := loggedContainer{client: runtimeapi.NewRuntimeServiceClient(conn), name: fmt.Sprintf("logs-%d", b.Pid())}
	pod := b.pods[0]
	image := &runtimeapi.ImageSpec{Image: runtime.PauseImage, UserSpecifiedImage: runtime.PauseImage}
	answer, err := c.client.CreateContainer(b.t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: pod.ID,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: c.name}, Image: image, Args: []string{"--name=" + c.name}, LogPath: filepath.Base(log),
		},
		SandboxConfig: &runtimeapi.PodSandboxConfig{
			Metadata:     &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: pod.UID},
			LogDirectory: filepath.Dir(log), Linux: &runtimeapi.LinuxPodSandboxConfig{},
		},
	})
	b.must(err)
	c.id = answer.GetContainerId()
	_, err = c.client.StartContainer(b.t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.id})
	b.must(err)
	b.logged = c
}

// stop stops and removes the container.
func (c loggedContainer) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	_, _ = c.client.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.id, Timeout: 1})
	_, _ = c.client.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.id})
}

// fillOutput writes to the output of the container's program, until nobody takes more.
func (b *bench) fillOutput() {
	b.t.Helper()
	var pid int
	lab.Eventually(b.t, 20*time.Second, "the container's program runs", func() error {
		pid = pidOf("--name=" + b.logged.name)
		if pid < 0 {
			return errors.New("it does not")
		}
		return nil
	})
	fd, err := syscall.Open("/proc/"+strconv.Itoa(pid)+"/fd/1", syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
	b.must(err)
	defer func() { _ = syscall.Close(fd) }()
	line := []byte(strings.Repeat("x", 127) + "\n")
	until := time.Now().Add(4 * time.Second)
	for time.Now().Before(until) {
		_, err := syscall.Write(fd, line)
		if err != nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
}
