//go:build e2e

package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// artifactsEnv names a directory where the logs of failed tests are kept.
const artifactsEnv = "PLEGD_E2E_ARTIFACTS"

// tailLines is how much of a log a failed test shows.
const tailLines = 40

// KeepLog shows the end of a log and copies the log to where PLEGD_E2E_ARTIFACTS says, if the test has failed. It is
// for a Cleanup, which must be asked for after the log's directory.
func KeepLog(t testing.TB, path, name string) {
	t.Helper()
	if !t.Failed() {
		return
	}
	t.Logf("the end of %s's log:\n%s", name, Tail(path, tailLines))
	dir := os.Getenv(artifactsEnv)
	if dir == "" {
		return
	}
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		file := strings.ReplaceAll(t.Name(), "/", "_") + "-" + name + "-" + filepath.Base(filepath.Dir(path)) + ".log"
		err = os.WriteFile(filepath.Join(dir, file), b, 0o644)
	}
	if err != nil {
		t.Logf("keep %s's log: %v", name, err)
	}
}

// Tail returns the last lines of a file.
func Tail(path string, lines int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
