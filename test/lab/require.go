//go:build e2e

package lab

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// RequireRoot skips the test where it does not run as root.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Unable(t, "needs root: it makes namespaces and cgroups of its own")
	}
}

// RequirePrograms skips the test where one of these programs is not installed.
// test/e2e/install-deps.sh installs them all.
func RequirePrograms(t testing.TB, names ...string) {
	t.Helper()
	var missing []string
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		Unable(t, "not installed: "+strings.Join(missing, ", ")+"; see test/e2e/install-deps.sh")
	}
}

// Unable ends a test that this machine cannot run: by a skip that says why, and
// in CI, where a skip would hide that nothing was tested, by a failure.
func Unable(t testing.TB, why string) {
	t.Helper()
	if ci := os.Getenv("CI"); ci != "" && ci != "false" && ci != "0" {
		t.Fatal("cannot run: " + why)
	}
	t.Skip("SKIPPED: " + why)
}
