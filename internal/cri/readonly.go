package cri

import (
	"context"
	"fmt"
	"path"
	"slices"

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
	opPlugins:          methodPlugins,
	opSandboxInfo:      runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName,
	opStatusInfo:       runtimeapi.RuntimeService_Status_FullMethodName,
	opImageStatus:      runtimeapi.ImageService_ImageStatus_FullMethodName,
}

// allowedPages are the pages that Get reads, all of CRI-O's or dockerd's sockets or of
// containerd's debug socket. Others must never be asked for: CRI-O's /pause/ID and
// /unpause/ID change a container, and its /debug/heap writes a file.
var allowedPages = []string{PageInfo, PageGoroutinesCRIO, PageGoroutines}

// refusedPage returns an error unless plegd reads the page.
func refusedPage(page string) error {
	if slices.Contains(allowedPages, page) {
		return nil
	}
	return fmt.Errorf("plegd only reads: %q is not among its pages", page)
}

// Method returns the name that an operation has in runtime.v1, "" for any other text.
func Method(operation string) string {
	method, known := methods[operation]
	if !known {
		return ""
	}
	return path.Base(method)
}

// refusal returns an error unless plegd makes calls of the method.
func refusal(method string) error {
	for _, allowed := range methods {
		if method == allowed {
			return nil
		}
	}
	return status.Errorf(codes.PermissionDenied, "%s is not on the read-only allow list", method)
}

func unaryReadOnly(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := refusal(method); err != nil {
		return err
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

func streamReadOnly(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := refusal(method); err != nil {
		return nil, err
	}
	return stream(ctx, desc, cc, method, opts...)
}
