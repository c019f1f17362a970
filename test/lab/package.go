//go:build e2e

package lab

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// distEnv names the directory of the packages to test instead of dist, where `make packages` puts them.
const distEnv = "PLEGD_DIST"

// PackageFile returns the one package of this machine's architecture that a pattern's * matches.
func PackageFile(t testing.TB, pattern string) string {
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
	Must(t, err)
	if len(found) != 1 {
		Unable(t, "no package, or several, as "+pattern+" in "+dist+": run make packages")
	}
	return found[0]
}

// Deployed reads a file below deploy/.
func Deployed(t testing.TB, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "deploy"}, path...)...))
	Must(t, err)
	return string(b)
}
