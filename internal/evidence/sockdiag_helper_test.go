package evidence

import (
	"testing"

	"github.com/plegd/plegd/internal/evidence/evidencetest"
	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
)

func at(path string) func() string { return func() string { return path } }

// needUnixDiag skips where the kernel has no unix_diag.
func needUnixDiag(tb testing.TB) {
	tb.Helper()
	var d sockdiag.Conn
	defer d.Close()
	evidencetest.NeedUnixDiag(tb, d.Open)
}
