package daemon

import (
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/must"
)

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
// answers Unimplemented, and what it said is over with any other answer.
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
