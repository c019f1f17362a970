package cri

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/leaktest"
)

// recorder is an Observer that remembers.
type recorder struct {
	mu    sync.Mutex
	calls []Call
}

func (r *recorder) CallDone(c Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
}

func (r *recorder) all() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// last returns the last call, which has to be there.
func (r *recorder) last(t testing.TB) Call {
	t.Helper()
	calls := r.all()
	if len(calls) == 0 {
		t.Fatal("the observer got no call")
	}
	return calls[len(calls)-1]
}

// awaitUp waits until gRPC's state shows the connection of a call that has reached the other end.
func awaitUp(t testing.TB, c *Client) {
	t.Helper()
	conn := c.session.Load().conn
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			t.Fatalf("the connection stays %s", state)
		}
	}
}

// serve serves a runtime in memory until the test ends.
func serve(t testing.TB, opts fakeruntime.Options) *fakeruntime.Runtime {
	t.Helper()
	rt := fakeruntime.New(opts)
	rt.Start()
	t.Cleanup(rt.Stop)
	return rt
}

// clientOf returns a client of a runtime, and the recorder of its calls.
func clientOf(t testing.TB, rt *fakeruntime.Runtime, opts Options) (*Client, *recorder) {
	t.Helper()
	r := &recorder{}
	opts.Observer, opts.Path = r, "/run/fake.sock"
	if opts.Dial == nil {
		opts.Dial = rt.Dialer()
	}
	c := New(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c, r
}

// within returns a context that ends after d, and with the test.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// calls are all calls of a client, by operation. ids are of what exists.
func calls(c *Client, sandbox, container string) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		OpVersion:          func(ctx context.Context) error { _, err := c.Version(ctx); return err },
		OpStatus:           func(ctx context.Context) error { _, err := c.Status(ctx); return err },
		OpListPodSandbox:   func(ctx context.Context) error { _, err := c.ListPodSandbox(ctx); return err },
		OpListContainers:   func(ctx context.Context) error { _, err := c.ListContainers(ctx); return err },
		OpPodSandboxStatus: func(ctx context.Context) error { return c.StatusOf(ctx, &Entry{Sandbox: true, ID: sandbox}) },
		OpContainerStatus:  func(ctx context.Context) error { return c.StatusOf(ctx, &Entry{ID: container}) },
	}
}

// rpcOf names the RPC of an operation.
func rpcOf(op string) string {
	return map[string]string{
		OpVersion: "Version", OpStatus: "Status", OpListPodSandbox: "ListPodSandbox", OpListContainers: "ListContainers",
		OpPodSandboxStatus: "PodSandboxStatus", OpContainerStatus: "ContainerStatus",
	}[op]
}

// failure returns err as an *facts.CallError, which it has to be.
func failure(t testing.TB, err error) *facts.CallError {
	t.Helper()
	var e *facts.CallError
	if !errors.As(err, &e) {
		t.Fatalf("error %v of type %T, want an *facts.CallError", err, err)
	}
	return e
}

func TestMain(m *testing.M) { leaktest.Check(m) }
