package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/bundle"
	"github.com/plegd/plegd/test/must"
)

// TestBundleTarget: a regular file is replaced with a word, also behind a link, and what is
// none is written to and stays what it is.
func TestBundleTarget(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	link := filepath.Join(dir, "link")
	must.Do(t, os.WriteFile(file, []byte("old"), 0o600))
	must.Do(t, os.Symlink(file, link))
	write := func(w io.Writer) (*bundle.Manifest, error) {
		_, err := io.WriteString(w, "new")
		return &bundle.Manifest{}, err
	}
	for path, word := range map[string]string{link: "is replaced", file: "is replaced", "/dev/null": "", filepath.Join(dir, "fresh"): ""} {
		mode := func() fs.FileMode {
			info, err := os.Lstat(path)
			if err != nil {
				return 0
			}
			return info.Mode().Type()
		}
		before := mode()
		var said strings.Builder
		must.Do(t, writeBundle(path, write, &said))
		if mode() != before || strings.Contains(said.String(), "is replaced") != (word != "") {
			t.Errorf("%s: %v has become %v, %q", path, before, mode(), &said)
		}
	}
	if text, err := os.ReadFile(file); string(text) != "new" || err != nil {
		t.Errorf("the file holds %q, %v", text, err)
	}
	var said strings.Builder
	if err := writeBundle(dir, write, &said); err == nil {
		t.Error("a directory is written to")
	}
	if err := writeBundle("/dev/full", write, &said); err == nil {
		t.Error("/dev/full takes an archive")
	}
}
