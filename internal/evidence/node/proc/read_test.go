package proc

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/evidence/evidencetest"
)

// TestProcReader: files longer than the buffer are read whole, and those beyond
// all measure not at all.
func TestProcReader(t *testing.T) {
	dir := t.TempDir()
	var r Reader
	for _, size := range []int{0, 1, 4095, 4096, 4097, 100_000, maxProcFile - 1} {
		want := strings.Repeat("x", size)
		evidencetest.WriteTree(t, dir, map[string]string{"f": want})
		if got, err := r.Read(dir + "/f"); err != nil || string(got) != want {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
	}
	evidencetest.WriteTree(t, dir, map[string]string{"f": strings.Repeat("x", maxProcFile+1)})
	if got, err := r.Read(dir + "/f"); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("%d bytes, %v; want an error that names the file", len(got), err)
	}
	if _, err := r.Read(dir + "/none"); !Gone(err) || !strings.Contains(err.Error(), dir) {
		t.Errorf("no such file: %v", err)
	}
	if _, err := r.Read(dir); err == nil || Gone(err) {
		t.Errorf("a directory: %v", err)
	}
}

func TestNumbers(t *testing.T) {
	dir := t.TempDir()
	for i := 1; i <= 600; i++ {
		evidencetest.WriteTree(t, dir, map[string]string{strconv.Itoa(i): ""})
	}
	evidencetest.WriteTree(t, dir, map[string]string{"self": "", "0": "", "-3": "", "1x": "", "99999999999999999999": ""})
	got, err := Numbers(dir, 10_000)
	slices.Sort(got)
	if err != nil || len(got) != 600 || got[0] != 1 || got[599] != 600 {
		t.Errorf("%d numbers, %v", len(got), err)
	}
	for _, limit := range []int{0, 1, 255, 599} {
		if got, err := Numbers(dir, limit); err != nil || len(got) != limit {
			t.Errorf("%d numbers at a limit of %d, %v", len(got), limit, err)
		}
	}
	if _, err := Numbers(filepath.Join(dir, "none"), 1); err == nil {
		t.Error("no error for no directory")
	}
}
