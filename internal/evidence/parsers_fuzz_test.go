package evidence

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/prometheus/procfs"

	"github.com/plegd/plegd/internal/health"
)

// FuzzPressure reads a PSI file, of the node or of a cgroup.
func FuzzPressure(f *testing.F) {
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

// FuzzAnswers checks what a hop, or any program in its place, answers to a probe.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{"HTTP/1.1 200 OK\r\n", "HTTP/1.1 500 Internal Server Error\n", "HTTP/1.", "HTTP/1.1 2x0 OK", "\x00\x00\x00\x04\x00\x00\x00\x00\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		cause, detail := dockerPing.check(string(answer))
		if ok := cause == health.CauseNone; ok != statusOK.Match(answer) || len(detail) > 2*maxDetail {
			t.Errorf("%q: %s, %q", answer, cause, detail)
		}
		if cause, _ := grpcHello.check(string(answer)); cause == health.CauseNone && (len(answer) < 9 || answer[3] != 4) {
			t.Errorf("%q: %s", answer, cause)
		}
	})
}

var statusOK = regexp.MustCompile(`^HTTP/1\.[^\n] 200`)
