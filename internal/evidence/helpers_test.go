package evidence

import (
	"testing"

	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/evidencetest"
)

func never() bool { return false }

func at(path string) func() string { return func() string { return path } }

// needUnixDiag skips where the kernel has no unix_diag.
func needUnixDiag(tb testing.TB) {
	tb.Helper()
	evidencetest.NeedUnixDiag(tb, proc.EachSocket(tb.Context(), 1<<proc.Listening, func(proc.Socket) {}))
}
