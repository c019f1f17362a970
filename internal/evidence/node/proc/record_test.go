package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestReadRecord: a record is read whole, also one that is longer than the buffer.
func TestReadRecord(t *testing.T) {
	var r Reader
	path := filepath.Join(t.TempDir(), "stat")
	for _, n := range []int{0, 300, 4 << 10, 20_000} {
		want := bytes.Repeat([]byte("x"), n)
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := r.ReadRecord(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: read %d, %v", n, len(got), err)
		}
	}
	s, err := r.ReadRecord("/proc/self/stat")
	if err != nil || !bytes.HasSuffix(s, []byte("\n")) {
		t.Errorf("%q, %v", s, err)
	}
}
