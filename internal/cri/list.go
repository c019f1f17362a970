package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// maxStreamed is the most that a streamed list may have, in bytes: four times
	// what the kubelet can list. A stream that continues beyond it will never end.
	maxStreamed = 4 * MaxMessageBytes
	// streamIdle is how long the next part of a streamed list may take. The
	// kubelet's own list has failed by then, so that waiting longer would only
	// hide that.
	streamIdle = 10 * time.Second
)

// errIdle counts as a deadline that has passed.
var errIdle = fmt.Errorf("no part of the streamed list came for %s: %w", streamIdle, context.DeadlineExceeded)

// lister makes one of the two lists: by one call, as the kubelet does, or, where
// the answer is refused for its size and the runtime can, as a stream. Both count
// as the same operation. It belongs to the caller of the list.
type lister[T any] struct {
	op             Operation
	method, stream string
	req, streamReq proto.Message
	reader         *listReader[T]

	// refused is why the last list was streamed, nil when it was not. on is the
	// connection's connect(2) of then: on another one there is another runtime.
	refused *Error
	on      *DialResult
	// lacks is true when the runtime of that connection cannot stream.
	lacks   bool
	lacksOn *DialResult
}

func newSandboxLister() *lister[Sandbox] {
	return &lister[Sandbox]{
		op:     OpListPodSandbox,
		method: runtimeapi.RuntimeService_ListPodSandbox_FullMethodName, req: &runtimeapi.ListPodSandboxRequest{},
		stream: runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName, streamReq: &runtimeapi.StreamPodSandboxesRequest{},
		reader: newSandboxReader(),
	}
}

func newContainerLister(sandboxes *lister[Sandbox]) *lister[Container] {
	return &lister[Container]{
		op:     OpListContainers,
		method: runtimeapi.RuntimeService_ListContainers_FullMethodName, req: &runtimeapi.ListContainersRequest{},
		stream: runtimeapi.RuntimeService_StreamContainers_FullMethodName, streamReq: &runtimeapi.StreamContainersRequest{},
		reader: newContainerReader(sandboxes.reader),
	}
}

// list makes the list. While it is beyond the limit it is streamed without
// asking for the whole first, which would cost the runtime as much again: its
// parts together are as long as the one answer would be.
func (l *lister[T]) list(ctx context.Context, c *Client) ([]*T, error) {
	known := l.refused != nil && l.on == c.LastDial()
	if known {
		refused := *l.refused
		if out, bytes, err := l.streamed(ctx, c); err == nil {
			if bytes <= refused.Limit {
				l.refused = nil // the kubelet can list again, and so will plegd
				return out, nil
			}
			refused.Bytes = bytes
			refused.Message = fmt.Sprintf("the list, streamed in parts, is larger than max (%d vs. %d)", bytes, refused.Limit)
			l.refused = &refused
			l.reader.changes.Refused = &refused
			return out, nil
		}
		// Whatever has happened, the call for the whole list tells.
	}
	l.refused = nil
	out, err := l.unary(ctx, c)
	var e *Error
	if !errors.As(err, &e) || !e.TooLarge() || known || l.lacks && l.lacksOn == c.LastDial() {
		return out, err
	}
	on := c.LastDial()
	out, bytes, streamErr := l.streamed(ctx, c)
	if streamErr != nil {
		if errors.As(streamErr, &e) && e.Code == CodeUnimplemented {
			l.lacks, l.lacksOn = true, on
		}
		return nil, err
	}
	errors.As(err, &e)
	l.reader.changes.Refused = e
	if bytes > e.Limit {
		l.refused, l.on = e, on
	}
	return out, nil
}

// unary asks for the whole list.
func (l *lister[T]) unary(ctx context.Context, c *Client) (out []*T, err error) {
	a := &answer{decode: func(b mem.BufferSlice) (err error) { out, err = l.reader.read(b); return err }}
	if err := c.call(ctx, l.op, l.method, l.req, a); err != nil {
		return nil, err
	}
	return out, nil
}

// streamed asks for the list in parts. Nothing is taken over before the end.
func (l *lister[T]) streamed(ctx context.Context, c *Client) (out []*T, bytes int, err error) {
	l.reader.begin(true)
	bytes, err = c.callStream(ctx, l.op, l.stream, l.streamReq, l.reader.part)
	if err != nil {
		l.reader.abort()
		return nil, 0, err
	}
	return l.reader.end(), bytes, nil
}

// callStream makes one measured call with an answer in parts, each of which part
// reads. It returns the size of all parts. The error is an *Error.
func (c *Client) callStream(ctx context.Context, op Operation, method string, req proto.Message, part func(mem.BufferSlice) error) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.timeout.Load()))
	defer cancel()
	t := c.trackers[op]
	start := time.Now()
	end := t.begin(start)
	bytes, err := c.receive(ctx, method, req, part)
	done := Call{Operation: op, Start: start, Duration: time.Since(start), Bytes: bytes, Code: CodeOK}
	var failed *Error
	if err != nil {
		failed = c.failure(op, err)
		failed.Bytes, failed.Limit = 0, 0 // of a part: it says nothing about the list
		done.Bytes, done.Code = 0, failed.Code
	} else {
		// One that failed stands for nothing: the call for the whole list, made
		// before it or after it, is what the history is to tell.
		t.done(done, nil)
	}
	end()
	if c.opts.Observer != nil {
		c.opts.Observer.CallDone(done)
	}
	if failed != nil {
		return 0, failed
	}
	return bytes, nil
}

// openStream makes one request whose answers come in parts; it ends with ctx.
func (c *Client) openStream(ctx context.Context, method string, req proto.Message, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	conn, err := c.connection()
	if err != nil {
		return nil, err
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method, opts...)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(req); err != nil && !errors.Is(err, io.EOF) {
		return nil, err // after io.EOF, RecvMsg says why
	}
	_ = stream.CloseSend() // what it could say, RecvMsg says too
	return stream, nil
}

func (c *Client) receive(ctx context.Context, method string, req proto.Message, part func(mem.BufferSlice) error) (bytes int, err error) {
	// The call ends with the last cancel, whatever of it is still under way.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(streamIdle, func() { cancel(errIdle) })
	defer idle.Stop()
	defer func() {
		if err != nil && errors.Is(context.Cause(ctx), errIdle) {
			err = errIdle
		}
	}()
	stream, err := c.openStream(ctx, method, req)
	if err != nil {
		return 0, err
	}
	for {
		a := &answer{decode: part}
		if err := stream.RecvMsg(a); errors.Is(err, io.EOF) {
			return bytes, nil
		} else if err != nil {
			return bytes, err
		}
		idle.Reset(streamIdle)
		if bytes += a.bytes; bytes > c.maxStreamed {
			return bytes, fmt.Errorf("the streamed list is longer than %d bytes and has not ended", c.maxStreamed)
		}
	}
}
