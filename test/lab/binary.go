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

var binary struct {
	sync.Once
	dir, path string
	err       error
}

// Binary returns the path of the plegd under test, building it the first time.
func Binary(t testing.TB) string {
	t.Helper()
	binary.Do(func() { binary.err = buildBinary() })
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return binary.path
}

// buildBinary builds plegd into a directory that all tests of the run share.
func buildBinary() (err error) {
	if path := os.Getenv(binaryEnv); path != "" {
		binary.path, err = filepath.Abs(path)
		return err
	}
	if binary.dir, err = os.MkdirTemp("", "plegd-e2e-bin-"); err != nil {
		return err
	}
	binary.path = filepath.Join(binary.dir, "plegd")
	build := exec.Command("go", "build", "-trimpath", "-o", binary.path, modulePath+"/cmd/plegd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build plegd: %w\n%s", err, out)
	}
	return nil
}

func removeBinaries() {
	if binary.dir != "" {
		_ = os.RemoveAll(binary.dir)
	}
}
