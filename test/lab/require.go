//go:build e2e

package lab

import (
	"os"
	"testing"

	"github.com/plegd/plegd/test/must"
)

// RequireRoot skips the test where it does not run as root.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Unable(t, "needs root: it makes namespaces and cgroups of its own")
	}
}

// RequirePrograms skips the test where one of these programs is not installed.
var RequirePrograms = must.Programs

// Unable ends a test that this machine cannot run.
var Unable = must.Unable
