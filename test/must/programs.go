package must

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Programs skips the test where one of these programs is not installed. test/e2e/install-deps.sh installs them all.
func Programs(t testing.TB, names ...string) {
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
