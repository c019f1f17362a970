// Package book is the form in which the case book keeps what its runs showed, one
// file a case and runtime, for docs/results/casebook.md. It measures nothing and judges
// nothing.
package book

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Case is an incident that was made on one runtime.
type Case struct {
	// ID is its number, with a letter for a second way in which it is made.
	ID  string `json:"id"`
	Row int    `json:"row"`
	// Source is the public incident, in Markdown; Made is how it was made.
	Source  string `json:"source"`
	Made    string `json:"made"`
	Runtime string `json:"runtime"`
	// Within is how soon after the symptom the culprit must be named, in seconds.
	Within float64   `json:"within_seconds"`
	Date   time.Time `json:"date"`
	Commit string    `json:"commit"`
	Runs   []Run     `json:"runs"`
}

// Run is one run of a case.
type Run struct {
	Reason  string `json:"reason"`
	Symptom string `json:"symptom,omitempty"`
	Culprit string `json:"culprit"`
	// First is the first step.
	First string `json:"first"`
	// Seconds from the symptom to the named culprit.
	Seconds float64 `json:"seconds"`
	// Wrong is what was not as it must be, empty for a run that was right.
	Wrong string `json:"wrong,omitempty"`
}

// Write keeps a case in dir, in place of the same one before.
func Write(dir string, c *Case) error {
	b, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return err
	}
	name := c.ID + "-" + strings.ReplaceAll(c.Runtime, " ", "-") + ".json"
	return os.WriteFile(filepath.Join(dir, name), append(b, '\n'), 0o644)
}

// ReadAll returns the cases in dir, in the order of the table.
func ReadAll(dir string) ([]Case, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Case
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var c Case
		if err := json.Unmarshal(b, &c); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Case) int {
		return cmp.Or(cmp.Compare(a.Row, b.Row), strings.Compare(a.ID, b.ID), strings.Compare(a.Runtime, b.Runtime))
	})
	return all, nil
}

// Table is the Markdown of some cases.
func Table(all []Case) string {
	var b strings.Builder
	b.WriteString("\n| case | incident | made by | runtime | reason | culprit | first step | s: median, most (limit) | right | date, commit |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, c := range all {
		last := c.Runs[len(c.Runs)-1]
		right := 0
		var took []float64
		for _, r := range c.Runs {
			if r.Wrong == "" {
				right, last = right+1, r
			}
			if r.Culprit != "" {
				took = append(took, r.Seconds)
			}
		}
		seconds := "never"
		if slices.Sort(took); len(took) > 0 {
			seconds = fmt.Sprintf("%.1f, %.1f", took[len(took)/2], took[len(took)-1])
		}
		reason := last.Reason
		if last.Symptom != "" {
			reason += ", behind " + last.Symptom
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s (%g) | %d of %d | %s, %s |\n", c.ID, c.Source, c.Made, c.Runtime,
			reason, cell(last.Culprit), cell(last.First), seconds, c.Within, right, len(c.Runs), c.Date.Format("2006-01-02"), c.Commit)
	}
	b.WriteString("\n")
	for _, c := range all {
		for _, r := range c.Runs {
			if r.Wrong != "" {
				fmt.Fprintf(&b, "- not right: %s on %s: %s\n", c.ID, c.Runtime, strings.ReplaceAll(r.Wrong, "\n", "; "))
			}
		}
	}
	return b.String()
}

func cell(s string) string { return strings.NewReplacer("|", `\|`, "\n", " ").Replace(s) }
