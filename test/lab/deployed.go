//go:build e2e

package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// Deployed reads a file below deploy/.
func Deployed(t testing.TB, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "deploy"}, path...)...))
	Must(t, err)
	return string(b)
}
