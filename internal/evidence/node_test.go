package evidence

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

var withoutAt = cmpopts.IgnoreFields(facts.Node{}, "At")

func TestNode(t *testing.T) {
	want := facts.Node{
		CPUSome: 12.5, MemoryFull: 1.5, IOFull: 33.33, CPUIdle: -1,
		Files: 2560, FilesMax: 9223372036854775807, Threads: 345, ThreadsMax: 31000,
	}
	got, _, err := readNode("testdata/proc")
	must.Do(t, err)
	if diff := cmp.Diff(want, *got, withoutAt); diff != "" || got.At.IsZero() {
		t.Errorf("at %s: %s", got.At, diff)
	}

	root := evidencetest.CopyTree(t, "testdata/proc")
	evidencetest.WriteTree(t, root, map[string]string{"sys/kernel/pid_max": "4194304\n"})
	if got, _, err := readNode(root); err != nil || got.ThreadsMax != 62000 {
		t.Errorf("%+v, %v; want the limit of threads-max", got, err)
	}
	// A pressure file without numbers is not a pressure of 0.
	evidencetest.WriteTree(t, root, map[string]string{"pressure/memory": "some avg10=3.25 avg60=0.00 avg300=0.00 total=1\n", "pressure/cpu": ""})
	if got, _, err := readNode(root); err != nil || got.CPUSome != -1 || got.MemoryFull != -1 {
		t.Errorf("%+v, %v; want -1 for a missing number", got, err)
	}
	must.Do(t, os.RemoveAll(filepath.Join(root, "pressure")))
	got, _, err = readNode(root)
	must.Do(t, err)
	if got.CPUSome != -1 || got.MemoryFull != -1 || got.IOFull != -1 || got.Threads != 345 {
		t.Errorf("without pressure files: %+v", got)
	}
}

// TestNodeIdle compares the CPUs' times of two samples.
func TestNodeIdle(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	w := newNode(root)
	look := func() float64 {
		t.Helper()
		v, err := w.spec.Gather(t.Context())
		must.Do(t, err)
		return v.CPUIdle
	}
	for _, step := range []struct {
		name, line string
		want       float64
	}{
		{"the first", "cpu  100 20 100 9000 5 0 1 0 7 7", -1},
		{"idle and waiting for a disk", "cpu  120 20 100 9050 35 0 1 0 9 9", .8},
		{"nothing has passed", "cpu  120 20 100 9050 35 0 1 0 9 9", -1},
		{"none idle", "cpu  200 20 110 9050 35 5 6 0 9 9", 0},
		{"iowait goes back", "cpu  300 20 110 9050 30 5 6 0 9 9", -1},
		{"made again", "cpu  1 1 1 1 1 1 1 1 1 1", -1},
	} {
		evidencetest.WriteTree(t, root, map[string]string{"stat": step.line + "\ncpu0 1 1 1 1\nbtime 1700000000\n"})
		if got := look(); math.Abs(got-step.want) > 1e-6 {
			t.Errorf("%s: idle %f, want %f", step.name, got, step.want)
		}
	}
}

func TestNodeFails(t *testing.T) {
	for name, content := range map[string]string{
		"sys/fs/file-nr":         "1\t2\n",
		"sys/kernel/pid_max":     "many\n",
		"sys/kernel/threads-max": "",
		"loadavg":                "0.00 0.01 0.05 1of345 1\n",
	} {
		root := evidencetest.CopyTree(t, "testdata/proc")
		evidencetest.WriteTree(t, root, map[string]string{name: content})
		if got, _, err := readNode(root); err == nil || got != nil {
			t.Errorf("%s: %+v, %v; want an error", name, got, err)
		}
	}
	if got, _, err := readNode(t.TempDir() + "/none"); err == nil {
		t.Errorf("%+v, want an error", got)
	}
}
