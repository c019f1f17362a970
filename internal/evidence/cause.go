package evidence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

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
