//go:build e2e

// Package systemd tests what a person installs: the unit under a real systemd
// beside a real containerd service, the packages, and the way from the package
// to the runbook. The systemd is the machine's own program, booted in
// namespaces (see test/lab).
//
// For each file of deploy/ that is tested here, a test names a mutation of the
// file, tries it, and wants to fail: a check that passes on a broken file is no
// check.
package systemd

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/plegd/plegd/test/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// The states and reasons that these tests bring about.
const (
	healthy       = "healthy"
	socketMissing = "RuntimeSocketMissing"
	frozen        = "RuntimeFrozen"
)

// distEnv names the directory of the packages to test instead of dist, where
// `make packages` puts them.
const distEnv = "PLEGD_DIST"

// packageFile returns the one package of this machine's architecture that a
// pattern's * matches.
func packageFile(t *testing.T, pattern string) string {
	t.Helper()
	dist := os.Getenv(distEnv)
	if dist == "" {
		dist = "../../dist"
	}
	arch := runtime.GOARCH
	if strings.HasSuffix(pattern, ".rpm") {
		arch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	}
	found, err := filepath.Glob(filepath.Join(dist, strings.ReplaceAll(pattern, "ARCH", arch)))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 {
		lab.Unable(t, "no package, or several, as "+pattern+" in "+dist+": run make packages")
	}
	return found[0]
}

// readDeploy returns a file of deploy/.
func readDeploy(t *testing.T, path string) string {
	t.Helper()
	return readFile(t, filepath.Join("../../deploy", path))
}

// mutate replaces the one place where a file has old.
func mutate(t *testing.T, text, old, mutant string) string {
	t.Helper()
	if n := strings.Count(text, old); n != 1 {
		t.Fatalf("the file has %q %d times, want once: name another mutation", old, n)
	}
	return strings.Replace(text, old, mutant, 1)
}

// readFile returns a file of the repository.
func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
