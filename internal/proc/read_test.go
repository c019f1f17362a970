package proc

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/plegd/plegd/test/evidencetest"
)

// TestRead: a value or an outcome, and never a part of a file.
func TestRead(t *testing.T) {
	const limit = 10_000
	dir := t.TempDir()
	evidencetest.WriteTree(t, dir, map[string]string{
		"empty": "", "most": strings.Repeat("x", limit), "more": strings.Repeat("x", limit+1),
	})
	for name, tt := range map[string]struct {
		path    string
		length  int
		outcome Outcome
	}{
		"empty":                       {path: "empty"},
		"as large as is read":         {path: "most", length: limit},
		"larger":                      {path: "more", outcome: TooLarge},
		"none":                        {path: "none", outcome: Absent},
		"below a file":                {path: "most/x", outcome: Absent},
		"a directory":                 {path: ".", outcome: Failed},
		"a process that has ended":    {path: "/proc/4194304/stat", outcome: Absent},
		"a file of /proc, not denied": {path: "/proc/self/comm", length: -1},
	} {
		path := tt.path
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		b, err := Read(path, limit)
		if OutcomeOf(err) != tt.outcome || tt.length >= 0 && len(b) != tt.length || err != nil && !errors.Is(err, tt.outcome) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	denied := failed("x", fs.ErrPermission)
	if !errors.Is(denied, Denied) || !errors.Is(denied, fs.ErrPermission) || OutcomeOf(denied) != Denied {
		t.Errorf("%v", denied)
	}
}

// TestNumbers: a directory of more entries than are wanted costs no more than these.
func TestNumbers(t *testing.T) {
	dir := t.TempDir()
	for i := range 3000 {
		if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for limit, outcome := range map[int]Outcome{10: TooLarge, 2999: TooLarge, 3000: "", 5000: ""} {
		got, err := Numbers(dir, limit)
		if len(got) != min(limit, 3000) || OutcomeOf(err) != outcome {
			t.Errorf("limit %d: %d entries, %v", limit, len(got), err)
		}
	}
	allocated := testing.AllocsPerRun(1, func() { _, _ = Numbers(dir, 10) })
	if allocated > 100 {
		t.Errorf("%.0f allocations for ten entries", allocated)
	}
}
