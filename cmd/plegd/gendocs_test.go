//go:build gendocs

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestManPages: each command has a page, with its exit codes in the description.
func TestManPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	dir := t.TempDir()
	if code, _, stderr := plegd(t, "gendocs", dir); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.8"))
	if err != nil || len(pages) < 9 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		must.Do(t, err)
		want := []string{".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n", "Jan 1970"}
		if filepath.Base(page) == "plegd-check.8" {
			want = append(want, ".SH EXAMPLE\n", "Exit status:", "4  wrong flag or argument", "2  unhealthy")
		}
		for _, w := range want {
			check.Contains(t, string(text), w, "%s lacks", filepath.Base(page))
		}
	}
}
