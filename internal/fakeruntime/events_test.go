package fakeruntime_test

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/fakeruntime"
)

type eventStream = grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]

// subscribe opens an event stream and waits until the runtime knows of it.
func subscribe(ctx context.Context, t *testing.T, rt *fakeruntime.Runtime, client runtimeapi.RuntimeServiceClient) eventStream {
	t.Helper()
	n := rt.Subscribers() + 1
	s, err := client.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.AwaitSubscribers(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return s
}

// send sends events with the ids from to to, each 4 KiB long, so that few of
// them fill a stream.
func send(rt *fakeruntime.Runtime, from, to int) {
	for i := from; i <= to; i++ {
		rt.SendEvent(&runtimeapi.ContainerEventResponse{
			ContainerId:      strconv.Itoa(i),
			PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: strings.Repeat("x", 4<<10)},
		})
	}
}

// want reads the events with the ids from to to.
func want(t *testing.T, s eventStream, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		if e, err := s.Recv(); err != nil || e.ContainerId != strconv.Itoa(i) {
			t.Fatalf("event %d: got %q, %v", i, e.GetContainerId(), err)
		}
	}
}

func TestEventsOfContainerd2AreKeptForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := start(t, fakeruntime.Options{Like: fakeruntime.LikeContainerd2})
		client := connect(t, rt)
		send(rt, 1, 2)
		time.Sleep(4 * time.Minute)
		send(rt, 3, 4)
		time.Sleep(2 * time.Minute) // 1 and 2 are older than five minutes now
		first := subscribe(t.Context(), t, rt, client)
		second := subscribe(t.Context(), t, rt, client)
		send(rt, 5, 5)
		want(t, first, 3, 5)
		want(t, second, 5, 5)
	})
}

func TestEventsOfContainerd2StopBehindOneThatDoesNotRead(t *testing.T) {
	const events = 600
	ends := map[string]func(*testing.T, eventStream, context.CancelFunc){
		"until it reads": func(t *testing.T, s eventStream, _ context.CancelFunc) { want(t, s, 1, events) },
		"until it goes":  func(_ *testing.T, _ eventStream, cancel context.CancelFunc) { cancel() },
		"until the deadline of its stream": func(*testing.T, eventStream, context.CancelFunc) {
			time.Sleep(10 * time.Second)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := start(t, fakeruntime.Options{Like: fakeruntime.LikeContainerd2})
				stuckCtx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				stuck := subscribe(stuckCtx, t, rt, connect(t, rt))
				other := subscribe(t.Context(), t, rt, connect(t, rt))
				send(rt, 1, events)
				read := make(chan struct{})
				go func() {
					defer close(read)
					want(t, other, 1, events)
				}()
				synctest.Wait()
				held := rt.HeldUp()
				if held == 0 || held >= events {
					t.Fatalf("%d of %d events are held up", held, events)
				}
				select {
				case <-read:
					t.Fatal("the other subscriber had all events while the first did not read")
				default:
				}
				// The lists answer all the while.
				if _, err := connect(t, rt).ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); err != nil {
					t.Fatal(err)
				}
				end(t, stuck, cancel)
				synctest.Wait()
				if n := rt.HeldUp(); n != 0 {
					t.Errorf("%d events are still held up", n)
				}
				<-read
			})
		})
	}
}

// The client frozen by SIGSTOP knows nothing of its deadline: the server does.
func TestEventStreamsDeadlineIsTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := start(t, fakeruntime.Options{Like: fakeruntime.LikeContainerd2})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		subscribe(ctx, t, rt, connect(t, rt))
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if n := rt.Subscribers(); n != 1 {
			t.Fatalf("%d subscribers before the deadline, want 1", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := rt.Subscribers(); n != 0 {
			t.Errorf("%d subscribers after the deadline, want none", n)
		}
	})
}

func TestLikeWithoutEvents(t *testing.T) {
	for like, wantErr := range map[fakeruntime.Like]error{
		fakeruntime.LikeContainerd16: status.Error(codes.Unimplemented, "unknown method GetContainerEvents for service runtime.v1.RuntimeService"),
		fakeruntime.LikeCRIO:         io.EOF,
	} {
		rt := start(t, fakeruntime.Options{Like: like})
		client := connect(t, rt)
		s, err := client.GetContainerEvents(within(t, 10*time.Second), &runtimeapi.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); !errors.Is(err, wantErr) {
			t.Errorf("%s: %v, want %v", like, err, wantErr)
		}
	}
}

func TestLikeIsToldByVersion(t *testing.T) {
	rt := start(t, fakeruntime.Options{Like: fakeruntime.LikeContainerd17})
	client := connect(t, rt)
	ctx := within(t, 10*time.Second)
	events := subscribe(ctx, t, rt, client)
	for _, step := range []struct {
		like          fakeruntime.Like
		name, version string
		config        codes.Code
	}{
		{fakeruntime.LikeContainerd17, "containerd", "v1.7.24", codes.Unimplemented},
		{fakeruntime.LikeContainerd2, "containerd", "v2.4.2", codes.OK},
		{fakeruntime.LikeCRIO, "cri-o", "1.37.0", codes.OK},
	} {
		if step.like != fakeruntime.LikeContainerd17 {
			rt.Become(step.like)
		}
		v, err := client.Version(ctx, &runtimeapi.VersionRequest{})
		if err != nil || v.RuntimeName != step.name || v.RuntimeVersion != step.version {
			t.Errorf("%s: version %v, %v", step.like, v, err)
		}
		if _, err := client.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{}); status.Code(err) != step.config {
			t.Errorf("%s: RuntimeConfig: %v, want %s", step.like, err, step.config)
		}
	}
	if _, err := events.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream of the runtime before: %v, want EOF", err)
	}
}
