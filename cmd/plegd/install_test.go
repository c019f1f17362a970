package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/plegd/plegd/test/must"
)

// TestInstall copies the program that runs, over an older one too, and leaves nothing else.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "plegd"), []byte("old"), 0o644))
	must.Do(t, install(dir))
	got, err := os.ReadFile(filepath.Join(dir, "plegd"))
	must.Do(t, err)
	want, err := os.ReadFile("/proc/self/exe")
	must.Do(t, err)
	if !bytes.Equal(got, want) {
		t.Error("it is not the program that runs")
	}
	info, err := os.Stat(filepath.Join(dir, "plegd"))
	must.Do(t, err)
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	if info.Mode().Perm() != 0o755 || len(entries) != 1 {
		t.Errorf("the mode is %v, the directory holds %v", info.Mode(), entries)
	}
	if err := install(filepath.Join(dir, "missing")); err == nil {
		t.Error("a directory that is not there is no error")
	}
}
