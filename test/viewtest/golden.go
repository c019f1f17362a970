package viewtest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// update flag
var update = flag.Bool("update", false, "rewrite the golden files and the generated documents")

// Golden compares got with a file, or rewrites the file with -update.
func Golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; if that is meant, run go test on the package, with -update, (-want +got):\n%s", file, diff)
	}
}

// DocsDir is the project's documentation, as seen from this package.
const DocsDir = "../../docs/"
