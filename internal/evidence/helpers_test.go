package evidence

import (
	"testing"

	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/evidencetest"
)

func never() bool { return false }

func at(path string) func() string { return func() string { return path } }

// namesOf returns the names of a socket, none of an unknown one.
func namesOf(path string) func() []string {
	return func() []string {
		if path == "" {
			return nil
		}
		return spellings(path)
	}
}

// needUnixDiag skips where the kernel has no unix_diag.
func needUnixDiag(tb testing.TB) {
	tb.Helper()
	evidencetest.NeedUnixDiag(tb, proc.EachSocket(tb.Context(), 1<<proc.Listening, func(proc.Socket) {}))
}
