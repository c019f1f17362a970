//go:build e2e

package runtime

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/test/lab"
)

// stopLimit is the grace period between SIGTERM and SIGKILL in a restart of the
// runtime. systemd's default is longer; a runtime that has not ended by then hangs.
const stopLimit = 20 * time.Second

// Restarted is what a restart showed.
type Restarted struct {
	// Killed is true when the runtime did not end on SIGTERM within 20 s.
	Killed bool
	// Listed is how long the first list took to be answered from the start on;
	// negative when none was within a minute.
	Listed time.Duration
}

// Restart restarts the runtime as a service manager does: SIGTERM, SIGCONT, after
// 20 s SIGKILL, and a start, which is all where it has ended. Its pods are left alone.
func (c *Containerd) Restart() (r Restarted) {
	c.TB.Helper()
	c.signalIfAlive(syscall.SIGTERM)
	c.signalIfAlive(syscall.SIGCONT)
	if r.Killed = !c.Ends(stopLimit); r.Killed {
		c.Finish(syscall.SIGKILL, lab.EndLimit)
	}
	c.Launch()
	start := time.Now()
	r.Listed = -1
	for time.Since(start) < time.Minute {
		if ask(c.Socket, 2*time.Second, func(ctx context.Context, r *CRI) error { return r.List(ctx) }) == nil {
			r.Listed = time.Since(start)
			return r
		}
		time.Sleep(lab.PollInterval)
	}
	return r
}

func (c *Containerd) signalIfAlive(s syscall.Signal) {
	if c.Running() {
		_ = syscall.Kill(c.Pid(), s)
	}
}

// States are the states of the runtime's containers by their id, where it answers in time.
func (r *CRI) States(limit time.Duration) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	list, err := r.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the containers: %w", err)
	}
	states := map[string]string{}
	for _, c := range list.GetContainers() {
		states[c.GetId()] = strings.TrimPrefix(c.GetState().String(), "CONTAINER_")
	}
	return states, nil
}

// UpdateResources asks for other CPU shares of a container, as the kubelet's CPU
// manager does, and returns when it is done or ctx ends.
func (c *Container) UpdateResources(ctx context.Context) error {
	_, err := c.r.runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: c.ID, Linux: &runtimeapi.LinuxContainerResources{CpuShares: 512},
	})
	return err
}

// List asks for the containers once.
func (r *CRI) List(ctx context.Context) error {
	_, err := r.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	return err
}
