// Package fuzzcorpus gives a fuzz test the inputs that long runs of it have
// found. It is for tests only.
package fuzzcorpus

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Add adds the lines of testdata/corpus/NAME.txt, each a quoted string as Go
// writes it, where NAME is the fuzz test's. They are what lies in the files of
// $(go env GOCACHE)/fuzz/.../NAME after a run: one file a test is easier to
// keep than hundreds.
func Add(f *testing.F) {
	f.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "corpus", f.Name()+".txt"))
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		input, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		if err != nil {
			f.Fatalf("testdata/corpus/%s.txt: %q is no quoted string", f.Name(), line)
		}
		f.Add([]byte(input))
	}
}
