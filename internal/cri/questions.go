package cri

import (
	"context"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/health"
)

// Version asks for the runtime's name and version.
func (c *Client) Version(ctx context.Context) (Version, error) {
	var m runtimeapi.VersionResponse
	// "0.1.0" is what the kubelet sends (kuberuntime, kubeRuntimeAPIVersion).
	if err := c.ask(ctx, OpVersion, &runtimeapi.VersionRequest{Version: "0.1.0"}, &m); err != nil {
		return Version{}, err
	}
	return Version{
		RuntimeName: clip(m.GetRuntimeName(), maxName), RuntimeVersion: clip(m.GetRuntimeVersion(), maxName),
		RuntimeAPIVersion: clip(m.GetRuntimeApiVersion(), maxName),
	}, nil
}

// Status asks for the runtime's conditions.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	var m runtimeapi.StatusResponse
	if err := c.ask(ctx, OpStatus, &runtimeapi.StatusRequest{}, &m); err != nil {
		return s, err
	}
	for _, cond := range m.GetStatus().GetConditions() {
		p := &health.Condition{
			Status: cond.GetStatus(), Reason: clip(cond.GetReason(), maxName), Message: clip(cond.GetMessage(), maxMessage),
		}
		switch {
		case cond.GetType() == runtimeapi.RuntimeReady && s.RuntimeReady == nil:
			s.RuntimeReady = p
		case cond.GetType() == runtimeapi.NetworkReady && s.NetworkReady == nil:
			s.NetworkReady = p
		}
	}
	return s, nil
}

// ListPodSandbox lists all sandboxes. The values are immutable, and the same as
// last time where nothing changed.
func (c *Client) ListPodSandbox(ctx context.Context) ([]*Sandbox, error) {
	s := c.session.Load()
	return list(ctx, s, OpListPodSandbox, s.sandboxes, &runtimeapi.ListPodSandboxRequest{}, s.trackers[OpListPodSandbox])
}

// ListContainers lists all containers, exited ones too. The values are
// immutable, and the same as last time where nothing changed.
func (c *Client) ListContainers(ctx context.Context) ([]*Container, error) {
	s := c.session.Load()
	return list(ctx, s, OpListContainers, s.containers, &runtimeapi.ListContainersRequest{}, s.trackers[OpListContainers])
}

func list[T any](
	ctx context.Context, s *session, op string, r *listReader[T], req proto.Message, t *tracker,
) (out []*T, err error) {
	a := &answer{decode: func(b mem.BufferSlice) error { out, err = r.read(b); return err }}
	if err = s.call(ctx, op, req, a, t); err != nil {
		return nil, err
	}
	return out, nil
}

// LastLists returns the last lists of sandboxes and of containers that were answered. They
// may be of different times.
func (c *Client) LastLists() (sandboxes []*Sandbox, containers []*Container) {
	s := c.session.Load()
	return s.sandboxes.lastList(), s.containers.lastList()
}

// PodLists lists the sandboxes and containers of one pod. The two calls count as
// lists, but leave the history of the lists as it is.
func (c *Client) PodLists(ctx context.Context, uid string) (sandboxes []*Sandbox, containers []*Container, err error) {
	s, selector := c.session.Load(), map[string]string{labelPodUID: uid}
	sandboxes, err = list(ctx, s, OpListPodSandbox, sandboxReader(), &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: selector},
	}, nil)
	if err == nil {
		containers, err = list(ctx, s, OpListContainers, containerReader(), &runtimeapi.ListContainersRequest{
			Filter: &runtimeapi.ContainerFilter{LabelSelector: selector},
		}, nil)
	}
	return sandboxes, containers, err
}

// PodSandboxStatus asks for one sandbox, as the kubelet's inspection does.
func (c *Client) PodSandboxStatus(ctx context.Context, id string) error {
	return c.ask(ctx, OpPodSandboxStatus,
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}, &runtimeapi.PodSandboxStatusResponse{})
}

// ContainerStatus asks for one container, as the kubelet's inspection does. It returns
// the exit code.
func (c *Client) ContainerStatus(ctx context.Context, id string) (exitCode int32, err error) {
	var m runtimeapi.ContainerStatusResponse
	err = c.ask(ctx, OpContainerStatus, &runtimeapi.ContainerStatusRequest{ContainerId: id}, &m)
	return m.GetStatus().GetExitCode(), err
}

// Answers asks for the status of one container or sandbox, to find out whether that call is
// answered while a list is not. It leaves no trace in the operation's history. The
// error is a *health.CallError.
func (c *Client) Answers(ctx context.Context, sandbox bool, id string) error {
	op, a := OpContainerStatus, into(&runtimeapi.ContainerStatusResponse{})
	var req proto.Message = &runtimeapi.ContainerStatusRequest{ContainerId: id}
	if sandbox {
		op, a = OpPodSandboxStatus, into(&runtimeapi.PodSandboxStatusResponse{})
		req = &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}
	}
	s := c.session.Load()
	err := s.call(ctx, op, req, a, nil)
	s.arrivals.single.Add(int64(a.bytes))
	return err
}
