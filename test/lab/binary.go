//go:build e2e

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

const modulePath = "github.com/plegd/plegd"

// binaryEnv names a plegd to test instead of one built from this tree.
const binaryEnv = "PLEGD_BINARY"

// runDir is a directory for what all tests of a run share. Main removes it.
var runDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "plegd-e2e-run-") })

var plegdBinary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(binaryEnv); path != "" {
		return filepath.Abs(path)
	}
	return goBuild("cmd/plegd")
})

// Binary returns the path of the plegd under test, building it the first time.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := plegdBinary()
	Must(t, err)
	return path
}

// goBuild builds a static program of this module and returns its path.
func goBuild(pkg string) (string, error) {
	dir, err := runDir()
	path := filepath.Join(dir, filepath.Base(pkg))
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, modulePath+"/"+pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err == nil {
		var out []byte
		if out, err = build.CombinedOutput(); err != nil {
			err = fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	return path, err
}
