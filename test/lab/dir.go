//go:build e2e

package lab

import (
	"os"
	"testing"

	"github.com/plegd/plegd/test/must"
)

// A unix socket's path has room for 107 bytes; this much of it is left to what
// comes below a directory that Dir makes.
const (
	maxSocketPath = 107
	socketRoom    = 32
)

// Dir makes a directory that is removed when the test ends. It is short enough for the
// paths of unix sockets in it, which t.TempDir, with the test's name in it, is not.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "plegd-e2e-") //nolint:usetesting // see above
	Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if len(dir)+socketRoom > maxSocketPath {
		t.Fatalf("%s is too long for a unix socket: set TMPDIR to a shorter directory", dir)
	}
	return dir
}

// Must ends the test at an error.
var Must = must.Do
