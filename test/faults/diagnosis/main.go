// Command diagnosis writes the results of the fault matrix into
// docs/results/faults.md: one table, faults down and runtimes across. It changes what
// stands between two marks and nothing else.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/plegd/plegd/test/faults/results"
	"github.com/plegd/plegd/test/resultpage"
)

func main() {
	dir := flag.String("results", "build/faults", "directory of the results")
	page := flag.String("write", "", "page to write the table into; empty: print it")
	flag.Parse()
	if err := run(*dir, *page); err != nil {
		fmt.Fprintln(os.Stderr, "diagnosis:", err)
		os.Exit(1)
	}
}

func run(dir, page string) error {
	runs, err := results.ReadAll(dir)
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		return fmt.Errorf("no results in %s: make e2e-faults makes them", dir)
	}
	return resultpage.Write(page, "make diagnosis-table", table(runs))
}

// table is the Markdown of the results.
func table(runs []*results.Run) string {
	var b strings.Builder
	b.WriteString("\n| runtime | version | right | date | commit |\n|---|---|---|---|---|\n")
	for _, r := range runs {
		right, all := 0, 0
		for i := range r.Faults {
			right += r.Faults[i].Right()
			all += len(r.Faults[i].Results)
		}
		fmt.Fprintf(&b, "| %s | %s | %d of %d (%.1f %%) | %s | %s |\n", r.Runtime, r.Version, right, all,
			100*float64(right)/float64(max(all, 1)), r.Date.Format("2006-01-02"), r.Commit)
	}
	b.WriteString("\nA cell: right of runs; seconds until named, median and slowest.\n\n| fault | primary reason (goal, s) |")
	for _, r := range runs {
		b.WriteString(" " + r.Runtime + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(runs)) + "\n")
	for _, f := range rows(runs) {
		want := f.Want
		if len(f.Also) > 0 {
			want += ", with " + strings.Join(f.Also, ", ")
		}
		fmt.Fprintf(&b, "| %s | %s (%.3g) |", f.Name, want, f.GoalSeconds)
		for _, r := range runs {
			b.WriteString(" " + cell(r, f.Name) + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	b.WriteString(wrongs(runs))
	return b.String()
}

// rows are the faults of all runs, each once, in the order of the matrix.
func rows(runs []*results.Run) []results.Fault {
	var out []results.Fault
	for _, r := range runs {
		for _, f := range r.Faults {
			if !slices.ContainsFunc(out, func(known results.Fault) bool { return known.Name == f.Name }) {
				out = append(out, f)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b results.Fault) int { return a.Place - b.Place })
	return out
}

// cell is what one runtime showed of one fault; empty where it was not made.
func cell(r *results.Run, name string) string {
	i := slices.IndexFunc(r.Faults, func(f results.Fault) bool { return f.Name == name })
	if i < 0 {
		return ""
	}
	f := &r.Faults[i]
	var named []float64
	for _, one := range f.Results {
		if one.NamedSeconds != nil {
			named = append(named, *one.NamedSeconds)
		}
	}
	text := fmt.Sprintf("%d/%d", f.Right(), len(f.Results))
	if len(named) == 0 {
		return text + "; never"
	}
	sort.Float64s(named)
	text += fmt.Sprintf("; %.1f, %.1f", named[len(named)/2], named[len(named)-1])
	if len(named) < len(f.Results) {
		text += ", never"
	}
	return text
}

// wrongs lists the runs that were not right and the faults that were not made.
func wrongs(runs []*results.Run) string {
	var b strings.Builder
	for _, r := range runs {
		for _, f := range r.Faults {
			for _, one := range f.Results {
				if one.Wrong != "" {
					fmt.Fprintf(&b, "- %s, %s: %s\n", r.Runtime, f.Name, one.Wrong)
				}
			}
		}
	}
	out := ""
	if b.Len() > 0 {
		out = "Not right:\n\n" + b.String() + "\n"
	}
	b.Reset()
	for _, r := range runs {
		names := make([]string, 0, len(r.Skipped))
		for name := range r.Skipped {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintf(&b, "- %s, %s: %s\n", r.Runtime, name, r.Skipped[name])
		}
	}
	if b.Len() > 0 {
		out += "Not made:\n\n" + b.String() + "\n"
	}
	return out
}
