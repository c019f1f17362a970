package cri

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
)

// tooLarge matches grpc-go's two refusals of a message for its size
// (google.golang.org/grpc rpc_util.go and server.go).
var tooLarge = regexp.MustCompile(`(received|trying to send) message (?:after decompression )?larger than max \((\d+) vs\. (\d+)\)`)

// notInitialized is what containerd answers to every call while it recovers
// its state (containerd pkg/cri/instrument): with code Unknown up to 1.7, with
// Unavailable from 2.0 on.
const notInitialized = "server is not initialized yet"

// unmarshalFailed is grpc-go's word for an answer that its codec could not read
// (google.golang.org/grpc rpc_util.go).
const unmarshalFailed = "failed to unmarshal the received message"

// AsError returns the error of a call as it is, nil for none. Any other error becomes one
// with code Unknown.
func AsError(err error) *facts.CallError {
	e, ok := errors.AsType[*facts.CallError](err)
	if err != nil && !ok {
		e = &facts.CallError{Code: CodeUnknown, Message: err.Error()}
	}
	return e
}

// errorOf turns a failed call's error into plain values.
func errorOf(op string, err error) *facts.CallError {
	s := status.Convert(err)
	e := &facts.CallError{Operation: op, Code: s.Code().String(), Message: plain.CutTo(s.Message(), maxMessage)}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		e.Code = CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		e.Code = CodeCanceled
	case s.Code() == codes.Unknown && strings.Contains(s.Message(), context.DeadlineExceeded.Error()):
		// Some hangs come back as Unknown, from a deadline inside the runtime.
		e.Code = CodeDeadlineExceeded
	}
	if s.Code() == codes.Internal && strings.Contains(s.Message(), unmarshalFailed) {
		e.Undecodable = true
		if strings.Contains(s.Message(), errTooMany.Error()) {
			e.Code = CodeResourceExhausted
			e.Message = errTooMany.Error()
			e.TooMany = true
			e.Undecodable = false
		}
	}
	if m := tooLarge.FindStringSubmatch(s.Message()); m != nil && s.Code() == codes.ResourceExhausted {
		e.ByServer = m[1] != "received"
		e.Bytes, _ = strconv.Atoi(m[2])
		e.Limit, _ = strconv.Atoi(m[3])
	}
	e.NotInitialized = (e.Code == CodeUnknown || e.Code == CodeUnavailable) && strings.Contains(e.Message, notInitialized)
	return e
}

// foreign holds what grpc-go says of a server that sent something, and it was
// not gRPC: HTTP/1.1, bytes that are no HTTP/2 frame, another frame in place of
// SETTINGS, or HTTP/2 without gRPC (google.golang.org/grpc internal/transport
// http2_client.go and golang.org/x/net/http2).
var foreign = []string{
	"looked like an HTTP/1.1 header",
	"frame too large",
	"not a settings frame",
	"unexpected HTTP status code received from server",
	"received unexpected content-type",
	"connection error: PROTOCOL_ERROR",
	"connection error: FRAME_SIZE_ERROR",
}

// Foreign reports whether the call failed because the other end sent something
// that is not gRPC. A connection that failed or ended is no proof of that.
func Foreign(e *facts.CallError) bool {
	return slices.ContainsFunc(foreign, func(text string) bool { return strings.Contains(e.Message, text) })
}
