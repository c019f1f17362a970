package evidence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/plain"
)

// ConnectCause tells why connect(2) to the socket at path failed, by its errno,
// and says it in words. It looks at the path's mode and owner; it returns
// CauseNone for a nil error.
func ConnectCause(err error, path string) (health.Cause, string) {
	switch {
	case err == nil:
		return health.CauseNone, ""
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return health.CauseMissing, path + ": no such file or directory"
	case errors.Is(err, syscall.ECONNREFUSED):
		if info, statErr := os.Stat(path); statErr == nil && info.Mode()&os.ModeSocket == 0 {
			return health.CauseNotSocket, fmt.Sprintf("%s is not a socket, its mode is %s", path, info.Mode())
		}
		return health.CauseRefused, path + ": connection refused: nobody listens"
	case errors.Is(err, syscall.EPROTOTYPE):
		return health.CauseNotSocket, path + " is a socket of another type, not a stream socket"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return health.CausePermissionDenied, fmt.Sprintf("%s: permission denied for uid %d", path, os.Geteuid())
	case errors.Is(err, syscall.EAGAIN):
		return health.CauseQueueFull, path + ": the accept queue is full (EAGAIN)"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded): // net's own is the latter
		return health.CauseTimeout, path + ": connect took too long"
	default:
		return health.CauseError, err.Error()
	}
}

// answerCause returns why a connection that the kernel had made came to nothing.
// That the other end speaks another protocol needs proof: something else that it sent.
func answerCause(err error) (health.Cause, string) {
	e := &health.CallError{Code: cri.CodeUnavailable, Message: err.Error()} // of a hop behind the runtime
	_ = errors.As(err, &e)
	hasClosed := slices.ContainsFunc(closed, func(text string) bool { return strings.Contains(e.Message, text) })
	switch {
	case e.NotInitialized:
		return health.CauseNotInitialized, e.Message
	case cri.Foreign(e):
		return health.CauseProtocol, "the other end does not speak gRPC"
	case strings.HasPrefix(e.Message, "malformed "): // net/http
		return health.CauseProtocol, "the other end does not speak HTTP"
	case e.Code == cri.CodeUnimplemented:
		return health.CauseUnimplemented, e.Message
	case e.Code == cri.CodeDeadlineExceeded, errors.Is(err, context.DeadlineExceeded):
		return health.CauseTimeout, "no answer to Version"
	case e.Code == cri.CodeUnavailable && hasClosed:
		return health.CauseClosed, "the other end closed the connection"
	default:
		return health.CauseError, plain.Cut(err.Error())
	}
}

// closed holds what grpc-go and the kernel say of a connection that has ended.
var closed = []string{"EOF", "reset by peer", "broken pipe", "closing", "draining"}
