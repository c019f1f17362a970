package exporter

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// update rewrites the golden files and the generated documents:
// go test ./internal/exporter -update.
var update = flag.Bool("update", false, "rewrite the golden files and the generated documents")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// golden compares got with a file, or rewrites the file with -update.
func golden(t *testing.T, file, got string) {
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
		t.Errorf("%s differs; if that is meant, run go test ./internal/exporter -update (-want +got):\n%s", file, diff)
	}
}
