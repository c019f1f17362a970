// Package results keeps what a suite measured, one file per case and runtime, and makes
// one table of them: cases down, runtimes across. It judges nothing.
package results

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Case is one case on one runtime.
type Case struct {
	// Place orders the table. Name is the case's, Want what must be named.
	Place int    `json:"place"`
	Name  string `json:"name"`
	Want  string `json:"want"`
	// Runtime is the column: "containerd 1.6", "CRI-O". Version is the runtime's own.
	Runtime string    `json:"runtime"`
	Version string    `json:"version"`
	Goal    float64   `json:"goal_seconds"`
	Commit  string    `json:"commit"`
	Date    time.Time `json:"date"`
	Runs    []Run     `json:"runs"`
}

// Run is one run of a case.
type Run struct {
	// Seconds until it was named; nil if it never was.
	Seconds *float64 `json:"seconds"`
	// Wrong is empty for a run that was right.
	Wrong string `json:"wrong,omitempty"`
}

var unsafe = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// Write keeps a case in dir, in place of an earlier one of the same name and runtime.
func Write(dir string, c *Case) error {
	b, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return err
	}
	name := unsafe.ReplaceAllString(c.Name+"-"+c.Runtime, "-") + ".json"
	return os.WriteFile(filepath.Join(dir, name), append(b, '\n'), 0o644)
}

// ReadAll returns the cases in dir in the order of the table.
func ReadAll(dir string) ([]*Case, error) {
	all, err := ReadFiles[Case](filepath.Join(dir, "*.json"))
	slices.SortFunc(all, func(a, b *Case) int {
		return cmp.Or(cmp.Compare(a.Place, b.Place), strings.Compare(a.Name, b.Name), strings.Compare(a.Runtime, b.Runtime))
	})
	return all, err
}

// ReadFiles decodes the JSON files whose paths match a pattern.
func ReadFiles[T any](pattern string) (all []*T, err error) {
	paths, err := filepath.Glob(pattern)
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		v := new(T)
		if err := json.Unmarshal(b, v); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		all = append(all, v)
	}
	return all, err
}

// Table is the Markdown of the cases.
func Table(all []*Case) string {
	var runtimes []string
	cells := map[string]map[string]string{}
	var rows []*Case
	wrong := ""
	right, runs := map[string]int{}, map[string]int{}
	newest := map[string]*Case{}
	for _, c := range all {
		if !slices.Contains(runtimes, c.Runtime) {
			runtimes = append(runtimes, c.Runtime)
		}
		if cells[c.Name] == nil {
			cells[c.Name] = map[string]string{}
			rows = append(rows, c)
		}
		cells[c.Name][c.Runtime] = c.cell()
		right[c.Runtime] += c.right()
		runs[c.Runtime] += len(c.Runs)
		if n := newest[c.Runtime]; n == nil || c.Date.After(n.Date) {
			newest[c.Runtime] = c
		}
		for _, r := range c.Runs {
			if r.Wrong != "" {
				wrong += fmt.Sprintf("- %s, %s: %s\n", c.Runtime, c.Name, strings.ReplaceAll(r.Wrong, "\n", "; "))
			}
		}
	}
	slices.Sort(runtimes)
	var b strings.Builder
	b.WriteString("\n| runtime | version | right | newest run |\n|---|---|---|---|\n")
	for _, r := range runtimes {
		n := newest[r]
		fmt.Fprintf(&b, "| %s | %s | %d of %d | %s, %s |\n", r, n.Version, right[r], runs[r], n.Date.Format("2006-01-02"), n.Commit)
	}
	b.WriteString("\nA cell: right of runs; seconds until named, beside kubelets until the API shows NotReady: median and slowest.\n\n| case | wanted (goal, s) |")
	for _, r := range runtimes {
		b.WriteString(" " + r + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(runtimes)) + "\n")
	for _, c := range rows {
		want := c.Want
		if c.Goal > 0 {
			want += fmt.Sprintf(" (%.3g)", c.Goal)
		}
		fmt.Fprintf(&b, "| %s | %s |", c.Name, want)
		for _, r := range runtimes {
			b.WriteString(" " + cells[c.Name][r] + " |")
		}
		b.WriteString("\n")
	}
	if wrong != "" {
		b.WriteString("\nNot right:\n\n" + wrong)
	}
	return b.String() + "\n"
}

func (c *Case) right() (n int) {
	for _, r := range c.Runs {
		if r.Wrong == "" {
			n++
		}
	}
	return n
}

func (c *Case) cell() string {
	var took []float64
	for _, r := range c.Runs {
		if r.Seconds != nil {
			took = append(took, *r.Seconds)
		}
	}
	text := fmt.Sprintf("%d/%d", c.right(), len(c.Runs))
	if slices.Sort(took); len(took) > 0 {
		text += fmt.Sprintf("; %.1f, %.1f", took[len(took)/2], took[len(took)-1])
	}
	if len(took) < len(c.Runs) {
		text += ", never"
	}
	return text
}
