package cri

import (
	"context"
	"fmt"
	"maps"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// methods are the calls that plegd makes, by operation. All of them only read. This is
// the one place that decides it: the connection's interceptors refuse everything else,
// so that no code path, present or future, can change the runtime.
var methods = map[string]string{
	OpVersion:          runtimeapi.RuntimeService_Version_FullMethodName,
	OpStatus:           runtimeapi.RuntimeService_Status_FullMethodName,
	OpListPodSandbox:   runtimeapi.RuntimeService_ListPodSandbox_FullMethodName,
	OpListContainers:   runtimeapi.RuntimeService_ListContainers_FullMethodName,
	OpPodSandboxStatus: runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName,
	OpContainerStatus:  runtimeapi.RuntimeService_ContainerStatus_FullMethodName,
	OpContainerEvents:  runtimeapi.RuntimeService_GetContainerEvents_FullMethodName,
}

func readOnly(method string) bool {
	for known := range maps.Values(methods) {
		if known == method {
			return true
		}
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
