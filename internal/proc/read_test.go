package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
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
	for i := range 300 {
		must.Do(t, os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o700))
	}
	for limit, outcome := range map[int]Outcome{10: TooLarge, 299: TooLarge, 300: "", 500: ""} {
		got, err := Numbers(dir, limit)
		if len(got) != min(limit, 300) || OutcomeOf(err) != outcome {
			t.Errorf("limit %d: %d entries, %v", limit, len(got), err)
		}
	}
	allocated := testing.AllocsPerRun(1, func() { _, _ = Numbers(dir, 10) })
	if allocated > 30 {
		t.Errorf("%.0f allocations for ten entries", allocated)
	}
}

// TestMountsOfFullNode: a table of as many lines as a node may have is read whole; a larger one,
// or one that does not come, has an outcome, and is never one without the mount.
func TestMountsOfFullNode(t *testing.T) {
	const overlay = "/%d rw,relatime - overlay overlay rw,lowerdir=%s,upperdir=/u,workdir=/w\n"
	layers := strings.Repeat("/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs:", 15)
	for name, tt := range map[string]struct {
		lines   int
		longest string
		outcome Outcome
	}{
		"2,000 long lines":    {2000, layers, ""},
		"50,000":              {maxMounts, "/l", ""},
		"one more":            {maxMounts + 1, "/l", TooLarge},
		"a line without end":  {1, strings.Repeat("x", maxMountLine), TooLarge},
		"a line over buffers": {3, strings.Repeat("x", maxMountLine/2), ""},
	} {
		var table strings.Builder
		for i := range tt.lines {
			fmt.Fprintf(&table, "%d 1 0:43 / /run"+overlay, i+1, i, tt.longest)
		}
		root := t.TempDir()
		evidencetest.WriteTree(t, root, map[string]string{"9/mountinfo": table.String()})
		mounts, err := NewTable(root).Mounts(t.Context(), 9)
		check.Equal(t, OutcomeOf(err), tt.outcome, "%s: %v", name, err)
		last, ok := MountOf(mounts, fmt.Sprintf("/run/%d/x", tt.lines-1))
		if err == nil && (!ok || last.ID != tt.lines || len(last.Options) > 256) {
			t.Errorf("%s: %+v of %d", name, last, len(mounts))
		}
	}
	if _, err := NewTable(t.TempDir()).Mounts(t.Context(), 9); OutcomeOf(err) != Absent {
		t.Errorf("of no process: %v", err)
	}
}
