//go:build gendocs

package main

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestManPages: each command has a page, with its exit codes in the description.
func TestManPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	dir := t.TempDir()
	if err := generateDocs(dir); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "man8", "*.8.gz"))
	if err != nil || len(pages) < 9 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		text := unzipped(t, page)
		at := 0
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION"} {
			next := strings.Index(text[at:], ".SH "+section+"\n")
			if next < 0 {
				t.Errorf("%s has no %s, or at another place", filepath.Base(page), section)
				continue
			}
			at += next
		}
	}
	check := unzipped(t, filepath.Join(dir, "man8", "plegd-check.8.gz"))
	for _, want := range []string{".SH EXAMPLE\n", "Exit status:", "4  wrong flag or argument", "2  unhealthy"} {
		if !strings.Contains(check, want) {
			t.Errorf("plegd-check(8) lacks %q", want)
		}
	}
}

func unzipped(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
