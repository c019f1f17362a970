package fakeruntime

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// service answers the calls that only read. The others never get here: see
// writeCall.
type service struct {
	cri.UnimplementedRuntimeServiceServer
	model *Model
}

// imageService has no images. It answers what clients ask for before anything else, as crictl
// does, and exists so that a write to it is counted as one.
type imageService struct {
	cri.UnimplementedImageServiceServer
}

// ImageFsInfo returns one file system that is hardly used.
func (*imageService) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	return &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &cri.FilesystemIdentifier{Mountpoint: "/var/lib/plegd-simulate"},
		UsedBytes:  &cri.UInt64Value{Value: 64 << 20},
		InodesUsed: &cri.UInt64Value{Value: 1000},
	}}}, nil
}

// ListImages returns none.
func (*imageService) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	return &cri.ListImagesResponse{}, nil
}

// writeCall reports whether a call would change a real runtime. A call that is
// not known to only read counts as one, so that a new call in the API fails a test.
func writeCall(rpc string) bool {
	switch rpc {
	case "Version", "Status", "RuntimeConfig",
		"ListPodSandbox", "StreamPodSandboxes", "PodSandboxStatus",
		"ListContainers", "StreamContainers", "ContainerStatus",
		"GetContainerEvents",
		"ContainerStats", "ListContainerStats", "StreamContainerStats",
		"PodSandboxStats", "ListPodSandboxStats", "StreamPodSandboxStats",
		"ListMetricDescriptors", "ListPodSandboxMetrics", "StreamPodSandboxMetrics",
		"ListImages", "StreamImages", "ImageStatus", "ImageFsInfo":
		return false
	}
	return true
}

// rpcNames lists the calls of runtime.v1, for telling a typing error from a name.
func rpcNames() []string {
	var names []string
	for _, d := range []grpc.ServiceDesc{cri.RuntimeService_ServiceDesc, cri.ImageService_ServiceDesc} {
		for _, m := range d.Methods {
			names = append(names, m.MethodName)
		}
		for _, s := range d.Streams {
			names = append(names, s.StreamName)
		}
	}
	return names
}

func (s *service) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return s.model.versionResponse(), nil
}

func (s *service) Status(_ context.Context, req *cri.StatusRequest) (*cri.StatusResponse, error) {
	return s.model.statusResponse(req.GetVerbose()), nil
}

func (s *service) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	return &cri.RuntimeConfigResponse{
		Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: cri.CgroupDriver_SYSTEMD},
	}, nil
}

func (s *service) ListPodSandbox(
	_ context.Context, req *cri.ListPodSandboxRequest,
) (*cri.ListPodSandboxResponse, error) {
	resp := &cri.ListPodSandboxResponse{Items: s.model.listSandboxes(req.GetFilter())}
	raw, _ := s.model.rawBytes()
	resp.ProtoReflect().SetUnknown(raw) // appended unchanged
	return resp, nil
}

func (s *service) ListContainers(
	_ context.Context, req *cri.ListContainersRequest,
) (*cri.ListContainersResponse, error) {
	resp := &cri.ListContainersResponse{Containers: s.model.listContainers(req.GetFilter())}
	_, raw := s.model.rawBytes()
	resp.ProtoReflect().SetUnknown(raw)
	return resp, nil
}

func (s *service) PodSandboxStatus(
	_ context.Context, req *cri.PodSandboxStatusRequest,
) (*cri.PodSandboxStatusResponse, error) {
	if st := s.model.findSandboxStatus(req.GetPodSandboxId()); st != nil {
		return &cri.PodSandboxStatusResponse{Status: st}, nil
	}
	return nil, status.Errorf(codes.NotFound,
		"an error occurred when try to find sandbox: %q: not found", req.GetPodSandboxId())
}

func (s *service) ContainerStatus(
	_ context.Context, req *cri.ContainerStatusRequest,
) (*cri.ContainerStatusResponse, error) {
	if st := s.model.findContainerStatus(req.GetContainerId()); st != nil {
		return &cri.ContainerStatusResponse{Status: st}, nil
	}
	return nil, status.Errorf(codes.NotFound,
		"an error occurred when try to find container %q: not found", req.GetContainerId())
}
