package evidence

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/plegd/plegd/internal/fuzzcorpus"
)

// FuzzPressure reads a PSI file, of the node or of a cgroup.
func FuzzPressure(f *testing.F) {
	fuzzcorpus.Add(f)
	f.Add([]byte("some avg10=1.00 avg60=0.50 avg300=0.10 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"))
	f.Add([]byte("some avg10=NaN avg60=-1 avg300=1e400 total=-1\n"))
	f.Add([]byte("full\nsome avg10\n"))
	root := f.TempDir()
	path := filepath.Join(root, "pressure/cpu")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		f.Fatal(err)
	}
	fs, err := procfs.NewFS(root)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		some, full, err := pressureOf(fs, "cpu")
		if err != nil && (some != 0 || full != 0) {
			t.Errorf("%q: %v, and yet %v, %v", b, err, some, full)
		}
	})
}

// FuzzDockerAnswer reads the first line of what dockerd, or whatever listens in
// its place, answers.
func FuzzDockerAnswer(f *testing.F) {
	for _, s := range []string{"HTTP/1.1 200 OK\r", "HTTP/1.1 500 Internal Server Error", "HTTP/1.", "HTTP/1.1 2x0 OK", "garbage"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		code, ok := statusCode(line)
		if ok && (len(code) != 3 || !strings.Contains(line, code)) {
			t.Errorf("%q has the code %q", line, code)
		}
		d := &docker{timeout: time.Second}
		if p := d.answered(d.last, line); p == nil || p.OK != (ok && code == "200") || len(p.Detail) > 2*maxDetail {
			t.Errorf("%q: %+v", line, p)
		}
	})
}
