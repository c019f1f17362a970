// Package results is the form in which one run of the fault matrix keeps what it
// measured, one file a runtime, so that docs/results/faults.md can show several runtimes
// in one table. It measures nothing and judges nothing.
package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Run is one run of the matrix on one runtime.
type Run struct {
	// Runtime is what the column is called: "containerd 1.6", "CRI-O". Version
	// is the runtime's own.
	Runtime string    `json:"runtime"`
	Version string    `json:"version"`
	Commit  string    `json:"commit"`
	Date    time.Time `json:"date"`
	Faults  []Fault   `json:"faults"`
	// Skipped are the faults that were not made, with the reason.
	Skipped map[string]string `json:"skipped,omitempty"`
}

// Fault is what the runs of one fault showed.
type Fault struct {
	Name string   `json:"name"`
	Want string   `json:"want"`
	Also []string `json:"also,omitempty"`
	// Place is the fault's place in the table, Goal how soon it must be named.
	Place       int      `json:"place"`
	GoalSeconds float64  `json:"goal_seconds"`
	Results     []Result `json:"results"`
}

// Result is one run of one fault. A time that is nil never came.
type Result struct {
	NamedSeconds *float64 `json:"named_seconds"`
	BackSeconds  *float64 `json:"back_seconds"`
	Others       []string `json:"others,omitempty"`
	// Wrong is what was not as it must be, empty for a run that was right.
	Wrong string `json:"wrong,omitempty"`
}

// Right is how many of the fault's runs were right.
func (f *Fault) Right() (n int) {
	for _, r := range f.Results {
		if r.Wrong == "" {
			n++
		}
	}
	return n
}

// Merge adds what another run on the same runtime measured: its faults replace
// those of the same name.
func (r *Run) Merge(later *Run) {
	for _, f := range later.Faults {
		i := slices.IndexFunc(r.Faults, func(known Fault) bool { return known.Name == f.Name })
		if i < 0 {
			r.Faults = append(r.Faults, f)
		} else {
			r.Faults[i] = f
		}
		delete(r.Skipped, f.Name)
	}
	r.Version, r.Commit, r.Date = later.Version, later.Commit, later.Date
	if r.Skipped == nil {
		r.Skipped = map[string]string{}
	}
	for name, why := range later.Skipped {
		r.Skipped[name] = why
	}
}

// Write keeps a run as the file of its runtime in dir. What that file holds of
// faults that this run did not make stays.
func Write(dir string, run *Run) error {
	path := filepath.Join(dir, fileName(run.Runtime))
	whole := &Run{Runtime: run.Runtime}
	if known, err := read(path); err == nil {
		whole = known
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	whole.Merge(run)
	b, err := json.MarshalIndent(whole, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// ReadAll returns the runs in dir, by the name of their runtime.
func ReadAll(dir string) ([]*Run, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var runs []*Run
	for _, path := range paths {
		run, err := read(path)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	slices.SortFunc(runs, func(a, b *Run) int { return rank(a.Runtime) - rank(b.Runtime) })
	return runs, nil
}

func read(path string) (*Run, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	run := &Run{}
	if err := json.Unmarshal(b, run); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return run, nil
}

// Columns are the runtimes in the order of the table.
var Columns = []string{"containerd 1.6", "containerd 1.7", "containerd 2.1", "containerd 2.4", "CRI-O", "cri-dockerd", "simulated"}

func rank(runtime string) int {
	if i := slices.Index(Columns, runtime); i >= 0 {
		return i
	}
	return len(Columns)
}

func fileName(runtime string) string { return strings.ReplaceAll(runtime, " ", "-") + ".json" }
