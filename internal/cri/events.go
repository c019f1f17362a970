package cri

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/plain"
)

// OpContainerEvents is the event stream, as the kubelet's metrics name it. It is
// no call that is answered, so it is not among Operations.
const OpContainerEvents = "get_container_events"

// EventType is the kind of a container event of runtime.v1.
type EventType = runtimeapi.ContainerEventType

// EventCreated is the creation of a container.
const EventCreated = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT

// NumEventTypes is the number of event types.
const NumEventTypes = 4

// eachEvent takes an event of the stream. uid is the pod's; it is empty if the event came
// without the sandbox's status, as for a sandbox that is gone.
type eachEvent = func(kind EventType, uid string)

// StreamEnd is how an event stream ended.
type StreamEnd uint8

// The ends of an event stream.
const (
	// StreamLeaseOver: the runtime ended it at its deadline, as agreed.
	StreamLeaseOver StreamEnd = iota
	// StreamNotEnded: the deadline passed and the runtime did not end the
	// stream. It hangs, or it enforces no deadlines.
	StreamNotEnded
	// StreamClosed: the runtime ended it of its own accord, without an error.
	StreamClosed
	// StreamFailed: it broke.
	StreamFailed
)

// ContainerEvents subscribes to the runtime's events for the time of the lease and
// hands each to each, in their order, from the caller's goroutine; each must not block.
// The deadline goes to the runtime, which ends the stream: even if this process stops
// reading, a blocked runtime waits no longer than that. The client waits for the end of
// the stream for twice as long, to check that the runtime enforces the deadline. Time
// in which this process is stopped does not count: when it continues, the end of the
// stream may be there and not yet read.
//
// It returns when the stream has ended. The error is a *facts.CallError, nil unless it
// was StreamFailed.
func (c *Client) ContainerEvents(ctx context.Context, lease time.Duration, each eachEvent) (StreamEnd, error) {
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	go afterRunning(waits, 2*lease, cancel)
	deadline := time.Now().Add(lease)
	err := c.events(leaseContext{waits, deadline}, each)
	switch {
	case errors.Is(err, io.EOF):
		return StreamClosed, nil
	case ctx.Err() == nil && waits.Err() != nil:
		return StreamNotEnded, nil
	case ctx.Err() == nil && !time.Now().Before(deadline) && status.Code(err) != codes.Unavailable:
		return StreamLeaseOver, nil
	}
	return StreamFailed, errorOf(OpContainerEvents, err)
}

// afterRunning calls f once this process has run for so long, or ctx ends. Of the time in
// which the process is stopped only a twentieth of d counts.
func afterRunning(ctx context.Context, d time.Duration, f func()) {
	for n := 0; n < 20 && bounded.Sleep(ctx, d/20); n++ {
	}
	f()
}

// events reads one stream to its end.
func (c *Client) events(ctx context.Context, each eachEvent) error {
	conn, err := c.session.Load().connection()
	if err != nil {
		return err
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, methods[OpContainerEvents],
		grpc.MaxCallRecvMsgSize(smallBytes)) // an event holds one pod
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&runtimeapi.GetEventsRequest{}); err != nil && !errors.Is(err, io.EOF) {
		return err // after io.EOF, RecvMsg says why
	}
	_ = stream.CloseSend() // RecvMsg returns the same error
	for {
		var m runtimeapi.ContainerEventResponse
		if err := stream.RecvMsg(into(&m)); err != nil {
			return err
		}
		each(m.GetContainerEventType(), plain.CutTo(m.GetPodSandboxStatus().GetMetadata().GetUid(), maxName))
	}
}

// leaseContext tells gRPC, and so the runtime, a deadline that is not its own:
// it ends later, so that it is the runtime that ends the stream.
type leaseContext struct {
	context.Context

	deadline time.Time
}

// Deadline returns the lease's end.
func (c leaseContext) Deadline() (time.Time, bool) { return c.deadline, true }
