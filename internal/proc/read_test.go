package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// TestNumbers: of a directory with more entries than the limit, one more than the limit is read.
func TestNumbers(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 {
		must.Do(t, os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o700))
	}
	for limit, outcome := range map[int]Outcome{10: TooLarge, 299: TooLarge, 300: "", 500: ""} {
		d, err := os.Open(dir)
		must.Do(t, err)
		got, err := numbersOf(d, limit)
		rest, restErr := d.Readdirnames(-1)
		must.Do(t, restErr)
		must.Do(t, d.Close())
		if len(got) != min(limit, 300) || OutcomeOf(err) != outcome || len(rest) != max(0, 300-limit-1) {
			t.Errorf("limit %d: %d entries, %v; %d left", limit, len(got), err, len(rest))
		}
	}
	names, err := Names(dir, 299)
	if len(names) != 299 || !slices.IsSorted(names) || OutcomeOf(err) != TooLarge {
		t.Errorf("%d names, %v", len(names), err)
	}
	if _, err := Numbers(filepath.Join(dir, "none"), 1); OutcomeOf(err) != Absent {
		t.Errorf("no directory: %v", err)
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
		// Without the timeout: how fast the machine is does not matter here.
		mounts, err := readMounts(t.Context(), filepath.Join(root, "9/mountinfo"), maxMounts)
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

// TestFiles: a file that is there and cannot be read, or holds no value, is reported, and a missing one
// only as absent.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	evidencetest.WriteTree(t, dir, map[string]string{
		"memory.max": "max\n", "memory.high": "no number\n", "cpu.stat": strings.Repeat("x 1\n", maxProcFile), "io.pressure/directory": "",
		"pids.max": "7\n", "cpu.pressure": "some avg10=101\n", "pressure/io/directory": "",
	})
	for name, tt := range map[string]struct {
		read func(f Files)
		want string
	}{
		"no limit":                  {func(f Files) { f.Limit(dir, "memory.max") }, "map[]"},
		"a limit":                   {func(f Files) { f.Limit(dir, "pids.max") }, "map[]"},
		"no file":                   {func(f Files) { f.Counters(dir, "memory.events") }, "map[memory files:not there]"},
		"no number":                 {func(f Files) { f.Number(dir, "memory.high") }, "map[memory files:failed]"},
		"counters without end":      {func(f Files) { f.CPUStat(dir) }, "map[cpu files:too large]"},
		"a share above 100 percent": {func(f Files) { f.Pressure("some", dir, "cpu.pressure") }, "map[cpu files:failed]"},
		"pressure is a directory":   {func(f Files) { f.Pressure("some", dir, "io.pressure") }, "map[io files:failed]"},
		"the node's pressure":       {func(f Files) { f.Pressure("full", dir, "pressure/io") }, "map[pressure/io:failed]"},
	} {
		unread := map[string]Outcome{}
		tt.read(NewFiles(func(part string, err error) { unread[part] = OutcomeOf(err) }))
		check.Equal(t, fmt.Sprint(unread), tt.want, "%s", name)
	}
}

// FuzzCgroup gives any content to each parser.
func FuzzCgroup(f *testing.F) {
	for _, s := range []string{
		"12:pids:/a\n10:freezer:/a\n1:name=systemd:/a\n", "0::/a/b\n", "1:a,,b:/:/\n", ":::", "1:name=systemd:/a:b\n",
		"nr_periods 5\nnr_throttled 3\nthrottled_time 100\n", "nr_periods 5\nthrottled_usec 18446744073709551615\n",
		"x -1\n", " 5\n", "max\n", "9223372036854771712\n", "-1\n", "99999999999999999999\n",
		"some avg10=NaN avg60=-1 avg300=1e400 total=-1\n", "full\nsome avg10\n",
	} {
		f.Add(s)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content string) {
		c := ParseCgroups([]byte(content))
		for name, path := range c {
			if !strings.HasPrefix(path, "/") || strings.ContainsAny(name, ":\n") || strings.Contains(path, "\n") {
				t.Errorf("%q: %q of %q", name, path, content)
			}
		}
		if p := c.Main(); !strings.HasPrefix(p, "/") {
			t.Errorf("path %q of %q", p, content)
		}
		evidencetest.WriteTree(t, dir, map[string]string{"cpu.stat": content})
		var files Files
		for name := range files.Counters(dir, "cpu.stat") {
			if strings.ContainsAny(name, " \n") {
				t.Errorf("%q of %q", name, content)
			}
		}
		if n, l := files.Number(dir, "cpu.stat"), files.Limit(dir, "cpu.stat"); n < -1 || l < 0 {
			t.Errorf("%q is %d, as a limit %d", content, n, l)
		}
		if s, ok := files.CPUStat(dir); s.Time < 0 || !ok && s.Periods != 0 {
			t.Errorf("%+v, %v of %q", s, ok, content)
		}
		for _, line := range []string{"some", "full"} {
			if v := files.Pressure(line, dir, "cpu.stat"); v != -1 && !(v >= 0 && v <= 100) {
				t.Errorf("pressure %v of %q", v, content)
			}
		}
	})
}
