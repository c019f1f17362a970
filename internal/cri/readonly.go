package cri

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// readOnly reports whether a method only reads. This is the one place that
// decides it: the connection's interceptors refuse everything else, so that no
// code path, present or future, can change the runtime.
func readOnly(method string) bool {
	switch method {
	case runtimeapi.RuntimeService_Version_FullMethodName,
		runtimeapi.RuntimeService_Status_FullMethodName,
		runtimeapi.RuntimeService_ListPodSandbox_FullMethodName,
		runtimeapi.RuntimeService_ListContainers_FullMethodName,
		runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName,
		runtimeapi.RuntimeService_ContainerStatus_FullMethodName,
		runtimeapi.RuntimeService_GetContainerEvents_FullMethodName:
		return true
	}
	return false
}

func refuse(method string) error {
	return status.Error(codes.PermissionDenied, fmt.Sprintf("plegd only reads: %s is not among its calls", method))
}

func unaryReadOnly(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !readOnly(method) {
		return refuse(method)
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

func streamReadOnly(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if !readOnly(method) {
		return nil, refuse(method)
	}
	return stream(ctx, desc, cc, method, opts...)
}
