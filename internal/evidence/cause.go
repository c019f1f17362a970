package evidence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
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
			return health.CauseNotSocket, fmt.Sprintf("%s is %s, not a socket", path, kind(info.Mode()))
		}
		return health.CauseRefused, path + ": connection refused: nobody listens"
	case errors.Is(err, syscall.EPROTOTYPE):
		return health.CauseNotSocket, path + " is a socket of another type, not a stream socket"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return health.CausePermissionDenied, fmt.Sprintf(
			"%s: permission denied for uid %d%s", path, os.Geteuid(), owner(path))
	case errors.Is(err, syscall.EAGAIN):
		return health.CauseQueueFull, path + ": the accept queue is full (EAGAIN)"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded): // net's own is the latter
		return health.CauseTimeout, path + ": connect took too long"
	default:
		return health.CauseError, err.Error()
	}
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "a regular file"
	case m.IsDir():
		return "a directory"
	default:
		return "of type " + m.Type().String()
	}
}

// owner describes the users and groups with access to path, "" if that cannot be read.
func owner(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("; it is %s, owner %d, group %d", info.Mode().Perm(), st.Uid, st.Gid)
}

// connectFailed reports whether connect(2) itself was refused, rather than cut
// short by a deadline.
func connectFailed(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) // false for nil
}

// answerCause returns why a connection that the kernel had made came to nothing.
// That the other end speaks no gRPC needs proof: something else that it sent.
func answerCause(err error) (health.Cause, string) {
	var e *health.CallError
	if !errors.As(err, &e) {
		if err == nil {
			return health.CauseClosed, "the connection was closed before its SETTINGS"
		}
		return health.CauseError, err.Error()
	}
	switch {
	case e.NotInitialized:
		return health.CauseNotInitialized, e.Message
	case cri.Foreign(e):
		return health.CauseProtocol, "the other end does not speak gRPC"
	case e.Code == cri.CodeUnimplemented:
		return health.CauseUnimplemented, e.Message
	case e.Code == cri.CodeDeadlineExceeded:
		return health.CauseTimeout, "no answer to Version"
	case e.Code == cri.CodeUnavailable && hasClosed(e.Message):
		return health.CauseClosed, "the other end closed the connection"
	default:
		return health.CauseError, e.Error()
	}
}

func hasClosed(message string) bool {
	return slices.ContainsFunc(closed, func(text string) bool { return strings.Contains(message, text) })
}

// closed holds what grpc-go says of a connection that has ended.
var closed = []string{"EOF", "reset by peer", "broken pipe", "closing", "draining"}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout()
}

// maxDetail bounds a text from outside, in bytes.
const maxDetail = 256

// cut returns the beginning of a text from outside.
func cut(s string) string {
	if len(s) > maxDetail {
		s = s[:maxDetail] + "..."
	}
	return strings.ToValidUTF8(s, "")
}
