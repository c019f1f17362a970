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

// readDeploy returns a file of deploy/.
func readDeploy(t *testing.T, path string) string {
	t.Helper()
	return readFile(t, filepath.Join("../../deploy", path))
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
