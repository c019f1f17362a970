package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestDiscoveredEndpoint: the first relist waits for the search, and no verdict
// on the way names a reason.
func TestDiscoveredEndpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		w := watchLogged(t, fakeRuntime(2, 1), func(c *Config) {
			c.RuntimeEndpoint = ""
			kubeletStarts(t, c.ProcFS, 7, "--container-runtime-endpoint=/run/fake.sock")
		}, zap.New(core))
		w.expect(300*time.Millisecond, well)
		for _, e := range logs.FilterMessageSnippet("verdict changed").All() {
			if reason := e.ContextMap()["reason"]; reason != "" && reason != health.Starting {
				t.Errorf("%v was the reason on the way", reason)
			}
		}
	})
}

// TestGuessedEndpoint: a socket that was only guessed is watched until the kubelet, which
// starts later, names another one.
func TestGuessedEndpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		procFS := ""
		w := watchLogged(t, fakeRuntime(1, 1), func(c *Config) { c.RuntimeEndpoint, procFS = "", c.ProcFS }, zap.NewNop())
		time.Sleep(time.Second)
		w.d.watchSocket(&kubelet.Found{Endpoint: facts.Endpoint{Path: "/run/guess.sock", Source: "a usual place"}, Serves: true})
		time.Sleep(time.Minute)
		check.Equal(t, w.d.path(), "/run/guess.sock", "watched without a kubelet")
		kubeletStarts(t, procFS, 100, "--container-runtime-endpoint=/run/fake.sock")
		time.Sleep(2 * findInterval)
		check.Equal(t, w.d.path(), "/run/fake.sock", "watched beside a kubelet that names /run/fake.sock")
	})
}

// TestLateSearch: a first search that hangs does not keep plegd from watching, and the socket
// is found when it returns.
func TestLateSearch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watchLogged(t, fakeRuntime(1, 1), func(c *Config) { c.RuntimeEndpoint = "" }, zap.NewNop())
		begun := make(chan struct{}, 3)
		s := &search{d: w.d, finder: &kubelet.Finder{ProcFS: t.TempDir()}, startWatching: func() { begun <- struct{}{} }}
		release := make(chan struct{})
		hang := func(context.Context) kubelet.Found { <-release; return kubelet.Found{} }
		s.look(t.Context(), hang)
		<-begun
		s.look(t.Context(), hang) // and another one does not begin
		close(release)
		synctest.Wait()
		s.look(t.Context(), func(context.Context) kubelet.Found {
			return kubelet.Found{Endpoint: facts.Endpoint{Path: "/run/fake.sock"}, Certain: true}
		})
		if path := w.d.path(); path != "/run/fake.sock" || !s.certain {
			t.Errorf("%q is watched, certain %t", path, s.certain)
		}
	})
}

// TestKubeletMoves: a kubelet that restarts with another endpoint is followed, in each spelling
// of a certain socket.
func TestKubeletMoves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		procFS := ""
		w := watchLogged(t, fakeRuntime(1, 1), func(c *Config) {
			c.RuntimeEndpoint, procFS = "", c.ProcFS
			kubeletStarts(t, c.ProcFS, 100, "--container-runtime-endpoint=/run/first.sock")
		}, zap.NewNop())
		time.Sleep(time.Minute)
		for pid, socket := range []string{"/run/fake.sock", "/run/third.sock"} {
			must.Do(t, os.RemoveAll(filepath.Join(procFS, fmt.Sprint(100+pid))))
			kubeletStarts(t, procFS, 101+pid, "--container-runtime-endpoint="+socket)
			time.Sleep(time.Minute)
			check.Equal(t, w.d.path(), socket, "watched beside a kubelet that names it")
		}
	})
}

// bytesCodec passes messages on as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// containerdWithout serves containerd's list of plugins, in which the CRI plugin has an error,
// and counts the calls.
func containerdWithout(t *testing.T, failure string) (socket string, calls *atomic.Int32) {
	t.Helper()
	field := func(b []byte, number protowire.Number, value string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), value)
	}
	plugin := field(field(nil, 2, "cri"), 7, string(field(nil, 2, failure)))
	list := field(nil, 1, string(plugin))
	calls = &atomic.Int32{}
	server := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		calls.Add(1)
		var request []byte
		if err := s.RecvMsg(&request); err != nil {
			return err
		}
		return s.SendMsg(&list)
	}))
	socket = filepath.Join(t.TempDir(), "c.sock")
	l, err := net.Listen("unix", socket)
	must.Do(t, err)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return socket, calls
}

// TestAskPlugin: containerd is asked once in a while for the error of its CRI plugin while it
// answers Unimplemented, and any other answer drops that error.
func TestAskPlugin(t *testing.T) {
	socket, calls := containerdWithout(t, `failed to find snapshotter "nydus"`)
	client := cri.New(cri.Options{Path: socket})
	t.Cleanup(func() { _ = client.Close() })
	d := &Daemon{client: client, judging: judging{news: bounded.NewSignal()}}
	unimplemented := &facts.CallError{Code: cri.CodeUnimplemented}
	for range 3 {
		d.askPlugin(t.Context(), unimplemented)
		if p := d.plugin.Load(); p == nil || p.Error != `failed to find snapshotter "nydus"` || p.Absent || calls.Load() != 1 {
			t.Fatalf("%+v after %d calls", p, calls.Load())
		}
	}
	for name, err := range map[string]*facts.CallError{"an answer": nil, "a hang": {Code: cri.CodeDeadlineExceeded}} {
		d.plugin.Store(&facts.CRIPlugin{})
		d.askPlugin(t.Context(), err)
		if p := d.plugin.Load(); p != nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
