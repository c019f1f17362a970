package cri

import (
	"context"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerAnswers asks for the status of one container, to find out whether that
// call is answered while a list is not. It leaves no trace in the operation's
// history, of which the relist's calls alone are part. The error is an *Error.
func (c *Client) ContainerAnswers(ctx context.Context, id string) error {
	var m runtimeapi.ContainerStatusResponse
	err := c.callBeside(ctx, OpContainerStatus, runtimeapi.RuntimeService_ContainerStatus_FullMethodName, &runtimeapi.ContainerStatusRequest{ContainerId: id}, into(&m))
	c.arrivals.single.Add(int64(proto.Size(&m)))
	return err
}

// SandboxAnswers is ContainerAnswers for a sandbox.
func (c *Client) SandboxAnswers(ctx context.Context, id string) error {
	var m runtimeapi.PodSandboxStatusResponse
	err := c.callBeside(ctx, OpPodSandboxStatus, runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}, into(&m))
	c.arrivals.single.Add(int64(proto.Size(&m)))
	return err
}
