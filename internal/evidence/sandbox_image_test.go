package evidence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// imageRuntime is a runtime that has a sandbox and one image.
type imageRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	sandbox *runtimeapi.PodSandbox
	info    string
	has     string
	failure error // of ImageStatus
}

func (r *imageRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{r.sandbox}}, nil
}

func (r *imageRuntime) PodSandboxStatus(_ context.Context, q *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	if !q.GetVerbose() || q.GetPodSandboxId() != r.sandbox.GetId() {
		return nil, status.Error(codes.NotFound, "not found")
	}
	return &runtimeapi.PodSandboxStatusResponse{Info: map[string]string{"info": r.info}}, nil
}

func (r *imageRuntime) Status(_ context.Context, q *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	if !q.GetVerbose() {
		return nil, status.Error(codes.NotFound, "not found")
	}
	return &runtimeapi.StatusResponse{Info: map[string]string{"cniconfig": r.info}}, nil
}

func (r *imageRuntime) ImageStatus(_ context.Context, q *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	answer := &runtimeapi.ImageStatusResponse{}
	if q.GetImage().GetImage() == r.has {
		answer.Image = &runtimeapi.Image{Id: "sha256:1"}
	}
	return answer, r.failure
}

// serve serves the runtime until the test ends, and returns a client of it.
func (r *imageRuntime) serve(t *testing.T) *cri.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runtime.sock")
	l, err := net.Listen("unix", path)
	must.Do(t, err)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, r)
	runtimeapi.RegisterImageServiceServer(server, r)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	client := cri.New(cri.Options{Path: path})
	t.Cleanup(func() { must.Do(t, client.Close()) })
	return client
}

// TestNetworkOf: the network of a sandbox is the one that was made for it.
func TestNetworkOf(t *testing.T) {
	r := &imageRuntime{sandbox: &runtimeapi.PodSandbox{Id: "a"}}
	client := r.serve(t)
	for info, want := range map[string]string{
		`{"runtimeSpec": {"linux": {"namespaces": [{"type": "pid"}, {"type": "network", "path": "/run/netns/cni-1"}]}}}`: "/run/netns/cni-1",
		`{"runtimeSpec": {"linux": {"namespaces": [{"type": "pid"}]}}}`:                                                  "", // the node's
		`{"runtimeSpec": {"linux": {"namespaces": 7}}}`:                                                                  "",
		"[]": "",
		"":   "",
	} {
		r.info = info
		got, err := client.NetworkOf(t.Context(), &cri.Entry{ID: "a"})
		must.Do(t, err)
		check.Equal(t, got, want, "%s", info)
	}
	_, err := client.NetworkOf(t.Context(), &cri.Entry{ID: "b"})
	check.Equal(t, err != nil, true, "an unknown sandbox is an error")
}

// TestNetworkPlugins: the plugins of each network are looked for in the directories that the runtime reports.
func TestNetworkPlugins(t *testing.T) {
	r := &imageRuntime{}
	client := r.serve(t)
	const plugins = `"Networks":[{"Config":{"Name":"lo","Plugins":[{"Network":{"type":"loopback","ipam":{}}}]},"IFName":"lo"},` +
		`{"Config":{"Plugins":[{"Network":{"type":"bridge"}},{"Network":{"type":"../portmap"}}]},"IFName":"eth0"}]}`
	for info, want := range map[string][][]string{
		`{"PluginDirs":["/opt/cni/bin","/usr/lib/cni"],` + plugins: {{"/opt/cni/bin/loopback", "/usr/lib/cni/loopback"}, {"/opt/cni/bin/bridge", "/usr/lib/cni/bridge"}, nil},
		`{"PluginDirs":["bin"],` + plugins:                         {nil, nil, nil},
		`{"PluginDirs":["/opt/cni/bin"]}`:                          nil,
		`{"Networks":7}`:                                           nil,
		"":                                                         nil,
	} {
		r.info = info
		got, err := client.NetworkPlugins(t.Context())
		must.Do(t, err)
		check.Equal(t, fmt.Sprint(got), fmt.Sprint(want), "%s", info)
	}
}

func TestSandboxImage(t *testing.T) {
	const (
		pause  = "registry.k8s.io/pause:3.10"
		before = `{"image": "` + pause + `"}` // containerd 1.6
		since2 = `{"image": "sha256:1", "runtimeSpec": {"annotations": {"io.kubernetes.cri.podsandbox.image-name": "` + pause + `"}}}`
	)
	started := time.Now().Add(-time.Hour)
	r := &imageRuntime{}
	client := r.serve(t)
	process := &facts.Process{PID: 100, Start: started, StartTicks: 5}
	i := &sandboxImage{client: client, process: func() *facts.Process { return process }}
	_, err := i.gather(t.Context())
	check.Equal(t, errors.Is(err, ErrNoData), true, "before a list there is no data")

	none := errors.New("unavailable")
	steps := []struct {
		name, id, info, has string
		made                time.Duration // after the runtime's start
		failure             error
		restarted           bool
		want                string // "" for no data
		absent              bool
	}{
		{name: "of another process", id: "a", info: before, made: -time.Minute},
		{name: "no information", id: "b", info: "", made: time.Minute},
		{name: "another form", id: "c", info: "[]", made: time.Minute},
		{name: "1.6", id: "d", info: before, made: time.Minute, has: pause, want: pause},
		{name: "2.x", id: "e", info: since2, made: time.Minute, has: pause, want: pause},
		{name: "no answer is not absent", id: "e", info: since2, made: time.Minute, failure: none},
		{name: "gone", id: "e", info: since2, made: time.Minute, want: pause, absent: true},
		{name: "no answer ends nothing", id: "e", info: since2, made: time.Minute, has: pause, failure: none, want: pause, absent: true},
		{name: "a restart ends nothing", id: "e", info: since2, made: -time.Minute, restarted: true, want: pause, absent: true},
		{name: "pulled", id: "e", info: since2, made: -time.Minute, has: pause, want: pause},
		{name: "of the process before", id: "e", info: since2, made: -time.Minute},
		{name: "another image", id: "f", info: `{"image": "pause:4"}`, made: time.Minute, has: "pause:4", want: "pause:4"},
	}
	for _, s := range steps {
		*r = imageRuntime{info: s.info, has: s.has, failure: s.failure, sandbox: &runtimeapi.PodSandbox{
			Id: s.id, Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod"}, CreatedAt: started.Add(s.made).UnixNano(),
		}}
		if s.restarted {
			process = &facts.Process{PID: 101, Start: started, StartTicks: 6}
		}
		_, err := client.ListPodSandbox(t.Context())
		must.Do(t, err)
		got, err := i.gather(t.Context())
		if s.want == "" {
			check.Equal(t, errors.Is(err, ErrNoData), true, "%s: no data", s.name)
			continue
		}
		must.Do(t, err)
		check.Equal(t, got.Name, s.want, "%s: the image", s.name)
		check.Equal(t, !got.AbsentSince.IsZero(), s.absent, "%s: absent", s.name)
	}
}
