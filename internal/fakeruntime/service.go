package fakeruntime

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// service answers the calls that only read. The others never get here: see
// writeCall.
type service struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	model *Model
}

// imageService exists so that a write to it is counted as one.
type imageService struct {
	runtimeapi.UnimplementedImageServiceServer
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
	for _, d := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		for _, m := range d.Methods {
			names = append(names, m.MethodName)
		}
		for _, s := range d.Streams {
			names = append(names, s.StreamName)
		}
	}
	return names
}

func (s *service) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return s.model.versionResponse(), nil
}

func (s *service) Status(_ context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return s.model.statusResponse(req.GetVerbose()), nil
}

func (s *service) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_SYSTEMD},
	}, nil
}

func (s *service) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	resp := &runtimeapi.ListPodSandboxResponse{Items: s.model.listSandboxes(req.GetFilter())}
	resp.ProtoReflect().SetUnknown(s.model.rawBytes(true)) // appended as it is
	return resp, nil
}

func (s *service) ListContainers(_ context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	resp := &runtimeapi.ListContainersResponse{Containers: s.model.listContainers(req.GetFilter())}
	resp.ProtoReflect().SetUnknown(s.model.rawBytes(false))
	return resp, nil
}

func (s *service) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	st := s.model.findSandboxStatus(req.GetPodSandboxId())
	if st == nil {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find sandbox: %q: not found", req.GetPodSandboxId())
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: st}
	if req.GetVerbose() {
		resp.Info = map[string]string{"info": fmt.Sprintf(`{"pid":1,"processStatus":"running","id":%q}`, st.Id)}
	}
	return resp, nil
}

func (s *service) ContainerStatus(_ context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	st := s.model.findContainerStatus(req.GetContainerId())
	if st == nil {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find container %q: not found", req.GetContainerId())
	}
	resp := &runtimeapi.ContainerStatusResponse{Status: st}
	if req.GetVerbose() {
		resp.Info = map[string]string{"info": fmt.Sprintf(`{"pid":1,"sandboxID":"","id":%q}`, st.Id)}
	}
	return resp, nil
}

func (s *service) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	if s.model.events.is() == LikeCRIO {
		return nil
	}
	sub := s.model.events.subscribe()
	defer s.model.events.unsubscribe(sub)
	for {
		e, err := s.model.events.next(stream.Context(), sub)
		if err != nil {
			return status.FromContextError(err).Err()
		}
		if e == nil {
			return nil
		}
		if err := stream.Send(e); err != nil {
			return err
		}
	}
}
