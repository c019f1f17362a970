//go:build e2e

package lab

import (
	"errors"
	"os"
	"testing"
)

// A unix socket's path has room for 107 bytes; this much of it is left to what
// comes below a directory that Dir makes.
const (
	maxSocketPath = 107
	socketRoom    = 32
)

// Dir makes a directory that is removed when the test ends. It is short enough
// for the paths of unix sockets in it.
func Dir(t testing.TB) string {
	t.Helper()
	if dir := t.TempDir(); len(dir)+socketRoom <= maxSocketPath {
		return dir
	}
	// TempDir puts the test's name into the path.
	dir, err := shortDir()
	if dir != "" {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func shortDir() (dir string, err error) {
	for _, parent := range []string{os.TempDir(), "/tmp"} {
		if dir, err = os.MkdirTemp(parent, "plegd-e2e-"); err != nil {
			return "", err
		}
		if len(dir)+socketRoom <= maxSocketPath {
			return dir, nil
		}
		if err := os.Remove(dir); err != nil {
			return "", err
		}
	}
	return "", errors.New("no directory is short enough for a unix socket: set TMPDIR to a shorter one")
}
