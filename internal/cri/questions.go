package cri

import (
	"context"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/health"
)

// Version asks for the runtime's name and version.
func (c *Client) Version(ctx context.Context) (Version, error) {
	var m runtimeapi.VersionResponse
	// "0.1.0" is what the kubelet sends (kuberuntime, kubeRuntimeAPIVersion).
	if err := c.session.Load().call(ctx, OpVersion, runtimeapi.RuntimeService_Version_FullMethodName,
		&runtimeapi.VersionRequest{Version: "0.1.0"}, into(&m)); err != nil {
		return Version{}, err
	}
	return Version{
		RuntimeName: clip(m.GetRuntimeName(), maxName), RuntimeVersion: clip(m.GetRuntimeVersion(), maxName),
		RuntimeAPIVersion: clip(m.GetRuntimeApiVersion(), maxName),
	}, nil
}

// Status asks for the runtime's conditions.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var m runtimeapi.StatusResponse
	if err := c.session.Load().call(ctx, OpStatus, runtimeapi.RuntimeService_Status_FullMethodName,
		&runtimeapi.StatusRequest{}, into(&m)); err != nil {
		return Status{}, err
	}
	var s Status
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

// PodSandboxStatus asks for one sandbox, as the kubelet's inspection does.
func (c *Client) PodSandboxStatus(ctx context.Context, id string) error {
	return c.session.Load().call(ctx, OpPodSandboxStatus, runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName,
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}, into(&runtimeapi.PodSandboxStatusResponse{}))
}

// ContainerStatus asks for one container, as the kubelet's inspection does. It returns
// the exit code.
func (c *Client) ContainerStatus(ctx context.Context, id string) (exitCode int32, err error) {
	var m runtimeapi.ContainerStatusResponse
	err = c.session.Load().call(ctx, OpContainerStatus, runtimeapi.RuntimeService_ContainerStatus_FullMethodName,
		&runtimeapi.ContainerStatusRequest{ContainerId: id}, into(&m))
	return m.GetStatus().GetExitCode(), err
}

// Answers asks for the status of one container or sandbox, to find out whether that call is
// answered while a list is not. It leaves no trace in the operation's history. The
// error is a *health.CallError.
func (c *Client) Answers(ctx context.Context, sandbox bool, id string) error {
	op, method := OpContainerStatus, runtimeapi.RuntimeService_ContainerStatus_FullMethodName
	var req, m proto.Message = &runtimeapi.ContainerStatusRequest{ContainerId: id}, &runtimeapi.ContainerStatusResponse{}
	if sandbox {
		op, method = OpPodSandboxStatus, runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName
		req, m = &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}, &runtimeapi.PodSandboxStatusResponse{}
	}
	a := into(m)
	s := c.session.Load()
	err := s.callBeside(ctx, op, method, req, a)
	s.arrivals.single.Add(int64(a.bytes))
	return err
}
