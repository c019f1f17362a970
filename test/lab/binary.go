//go:build e2e

package lab

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	return GoBuild("cmd/plegd")
})

// Binary returns the path of the plegd under test, building it the first time.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := plegdBinary()
	Must(t, err)
	return path
}

// GoBuild builds a static program of this module and returns its path.
func GoBuild(pkg string) (string, error) {
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

// RunScript runs a script beside this file and returns the line that it prints.
func RunScript(name string, args ...string) (string, error) {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	var stderr bytes.Buffer
	run := exec.Command(filepath.Join(filepath.Dir(strings.TrimSpace(string(mod))), "test", "lab", name), args...)
	run.Env, run.Stderr = append(os.Environ(), "GOFLAGS="), &stderr
	out, err := run.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
