//go:build e2e

package hostile

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary is the plegd under test.
var binary string

// binaryEnv names a plegd to test instead of one built from this tree.
const binaryEnv = "PLEGD_BINARY"

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	// Nearly all that a test does here is to wait.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = flag.Set("test.parallel", "8")
	}
	dir, err := os.MkdirTemp("", "plegd-hostile-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary, err = build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// build makes plegd as `make build` does, but for its version: what is tested is
// what is installed, and the race detector would be most of its memory.
func build(dir string, args ...string) (string, error) {
	path := filepath.Join(dir, "plegd")
	if given := os.Getenv(binaryEnv); given != "" && len(args) == 0 {
		// A copy, where somebody who is not root can reach it.
		b, err := os.ReadFile(given)
		if err != nil {
			return "", err
		}
		return path, os.WriteFile(path, b, 0o755)
	}
	args = append([]string{"build", "-trimpath", "-buildvcs=false", "-o", path}, args...)
	cmd := exec.Command("go", append(args, "github.com/plegd/plegd/cmd/plegd")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build plegd: %w\n%s", err, out)
	}
	return path, nil
}
