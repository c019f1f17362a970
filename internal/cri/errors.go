package cri

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// tooLarge matches grpc-go's two refusals of a message for its size
// (google.golang.org/grpc rpc_util.go and server.go).
var tooLarge = regexp.MustCompile(`(received|trying to send) message (?:after decompression )?larger than max \((\d+) vs\. (\d+)\)`)

// notInitialized is what containerd answers to every call while it recovers
// its state (containerd pkg/cri/instrument).
const notInitialized = "server is not initialized yet"

// unmarshalFailed is grpc-go's word for an answer that its codec could not read
// (google.golang.org/grpc rpc_util.go).
const unmarshalFailed = "failed to unmarshal the received message"

// errorOf turns a failed call's error into plain values.
func errorOf(op Operation, err error) *Error {
	s := status.Convert(err)
	e := &Error{Operation: op, Code: codeOf(s.Code()), Message: clip(s.Message(), maxMessage)}
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
		for _, why := range []error{errTooMany, errTooMuch} {
			if strings.Contains(s.Message(), why.Error()) {
				e.Code, e.Message, e.TooMany = CodeResourceExhausted, why.Error(), true
				e.Undecodable = false
			}
		}
	}
	if m := tooLarge.FindStringSubmatch(s.Message()); m != nil && s.Code() == codes.ResourceExhausted {
		e.ByServer = m[1] != "received"
		e.Bytes, _ = strconv.Atoi(m[2])
		e.Limit, _ = strconv.Atoi(m[3])
	}
	return e
}

func codeOf(c codes.Code) Code { return Code(c.String()) }

// NotInitialized tells whether the runtime answered that it is still
// recovering its state.
func (e *Error) NotInitialized() bool {
	return e.Code == CodeUnknown && strings.Contains(e.Message, notInitialized)
}

// TooLarge tells whether an answer was refused for its size.
func (e *Error) TooLarge() bool { return e.Code == CodeResourceExhausted && e.Bytes > 0 }
