package cri

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
)

// decided says of every call of runtime.v1 whether plegd may make it. A call
// that a new version of the API brings has to be decided here.
func decided() map[string]bool {
	return map[string]bool{
		"Version": true, "Status": true,
		"ListPodSandbox": true, "ListContainers": true,
		"StreamPodSandboxes": false, "StreamContainers": false,
		"PodSandboxStatus": true, "ContainerStatus": true, "ImageStatus": true,
		"GetContainerEvents": true, // by lease only: ContainerEvents

		"RunPodSandbox": false, "StopPodSandbox": false, "RemovePodSandbox": false,
		"CreateContainer": false, "StartContainer": false, "StopContainer": false, "RemoveContainer": false,
		"UpdateContainerResources": false, "UpdatePodSandboxResources": false, "UpdateRuntimeConfig": false,
		"ReopenContainerLog": false, "CheckpointContainer": false, "CheckpointPod": false, "RestorePod": false,
		"ExecSync": false, "Exec": false, "Attach": false, "PortForward": false,
		"PullImage": false, "RemoveImage": false,

		// They only read, and plegd has no use for them; a stream can hold up the node.
		"StreamContainerStats": false, "StreamPodSandboxStats": false, "StreamPodSandboxMetrics": false, "StreamImages": false,
		"ContainerStats": false, "ListContainerStats": false, "PodSandboxStats": false, "ListPodSandboxStats": false,
		"ListMetricDescriptors": false, "ListPodSandboxMetrics": false, "RuntimeConfig": false,
		"ListImages": false, "ImageFsInfo": false,
	}
}

// TestOnlyReads makes every call of runtime.v1 with the generated client on plegd's
// connection. A call that is not on the allowlist does not reach the runtime.
func TestOnlyReads(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	c, _ := clientOf(t, rt, Options{})
	if _, err := c.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	known := decided()
	for _, service := range []struct {
		desc   grpc.ServiceDesc
		client any
	}{
		{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.NewRuntimeServiceClient(c.session.Load().conn)},
		{runtimeapi.ImageService_ServiceDesc, runtimeapi.NewImageServiceClient(c.session.Load().conn)},
	} {
		var names []string
		for _, m := range service.desc.Methods {
			names = append(names, m.MethodName)
		}
		for _, s := range service.desc.Streams {
			names = append(names, s.StreamName)
		}
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				allowed, ok := known[name]
				if !ok {
					t.Fatalf("%s/%s is new in runtime.v1: decide whether plegd may call it", service.desc.ServiceName, name)
				}
				delete(known, name)
				before := rt.Calls(name).Started
				err := invoke(t.Context(), service.client, name)
				if allowed { // a stream is opened before it has arrived
					awaited, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					_ = rt.AwaitCalls(awaited, name, before+1)
				}
				refused := status.Code(err) == codes.PermissionDenied && strings.Contains(status.Convert(err).Message(), "read-only allow list")
				reached := rt.Calls(name).Started > before
				if refused == allowed || reached != allowed {
					t.Errorf("allowed %t; refused %t, it reached the runtime %t: %v", allowed, refused, reached, err)
				}
			})
		}
	}
	for name := range known {
		t.Errorf("%s is decided and not in runtime.v1", name)
	}
	if w := rt.WriteCalls(); len(w) > 0 {
		t.Errorf("calls that would have changed the runtime: %v", w)
	}
}

// invoke makes a call of a generated client, unary or streaming, with an empty
// request. The answer is not looked at.
func invoke(ctx context.Context, client any, name string) error {
	method := reflect.ValueOf(client).MethodByName(name)
	request := reflect.New(method.Type().In(1).Elem())
	codec := grpc.ForceCodecV2(encoding.GetCodecV2("proto")) // plegd's own takes its own answers alone
	out := method.Call([]reflect.Value{reflect.ValueOf(ctx), request, reflect.ValueOf(codec)})
	err, _ := out[1].Interface().(error)
	return err
}

// TestOtherServicesAreRefused: a name that is no call of runtime.v1 is refused
// too, however it is called.
func TestOtherServicesAreRefused(t *testing.T) {
	rt := serve(t, fakeruntime.Options{})
	c, _ := clientOf(t, rt, Options{})
	for _, method := range []string{
		"/runtime.v1alpha2.RuntimeService/ListContainers", "/grpc.health.v1.Health/Check",
		"/containerd.services.containers.v1.Containers/List", "/containerd.services.introspection.v1.Introspection/Server", "/runtime.v1.ImageService/Version", "runtime.v1.RuntimeService/Version", "",
	} {
		if err := c.session.Load().conn.Invoke(t.Context(), method, &runtimeapi.VersionRequest{}, into(&runtimeapi.VersionResponse{})); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%q: %v, want PermissionDenied", method, err)
		}
		if _, err := c.session.Load().conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, method); status.Code(err) != codes.PermissionDenied {
			t.Errorf("stream %q: %v, want PermissionDenied", method, err)
		}
	}
	if calls := rt.AllCalls(); len(calls) > 0 {
		t.Errorf("calls that reached the runtime: %v", calls)
	}
}
