package fakeruntime_test

import (
	"context"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves a runtime in memory until the test ends.
func start(t testing.TB, opts fakeruntime.Options) *fakeruntime.Runtime {
	t.Helper()
	rt := fakeruntime.New(opts)
	rt.Start()
	t.Cleanup(rt.Stop)
	return rt
}

// dial returns a connection that reconnects within 10 ms.
func dial(t testing.TB, rt *fakeruntime.Runtime, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(rt.DialContext),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16 << 20)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
	}, opts...)
	cc, err := grpc.NewClient("passthrough:///fakeruntime", opts...)
	must.Do(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

func connect(t testing.TB, rt *fakeruntime.Runtime, opts ...grpc.DialOption) runtimeapi.RuntimeServiceClient {
	t.Helper()
	return runtimeapi.NewRuntimeServiceClient(dial(t, rt, opts...))
}

// within returns a context that ends after d, and with the test.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// dialRaw connects without gRPC.
func dialRaw(t testing.TB, rt *fakeruntime.Runtime) net.Conn {
	t.Helper()
	c, err := rt.Dialer()(t.Context())
	must.Do(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
