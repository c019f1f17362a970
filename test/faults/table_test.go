//go:build e2e

package faults

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/results"
)

// row is a line of the table.
type row struct {
	*fault
	at      int // in the matrix
	runs    int
	results []result
}

// table are the rows that have a result, skipped the faults that were not made
// with the reason; tableMu guards them and the rows.
var (
	tableMu sync.Mutex
	table   []*row
	skipped = map[string]string{}
)

func newRow(at int, f *fault, runs int) *row { return &row{fault: f, at: at, runs: runs} }

func (r *row) took(one result) {
	tableMu.Lock()
	defer tableMu.Unlock()
	if r.results = append(r.results, one); len(r.results) == 1 {
		table = append(table, r)
	}
}

func skip(f *fault, why string) {
	tableMu.Lock()
	defer tableMu.Unlock()
	skipped[f.name] = why
}

// printTable prints the table and what was not made, and keeps the results where
// PLEGD_FAULTS_RESULTS says.
func printTable() {
	if len(table) == 0 {
		return
	}
	slices.SortFunc(table, func(a, b *row) int { return a.at - b.at })
	var b strings.Builder
	b.WriteString("| fault | primary reason | right | named after, s: median, most (goal) | others on the way | healthy after, s: median, most |\n|---|---|---|---|---|---|\n")
	for _, r := range table {
		right := 0
		var named, back []time.Duration
		others := map[string]int{}
		for _, one := range r.results {
			if one.wrong == "" {
				right++
			}
			named, back = append(named, one.named), append(back, one.back)
			for _, id := range one.others {
				others[id]++
			}
		}
		var way []string
		for id, n := range others {
			way = append(way, fmt.Sprintf("%s %d", id, n))
		}
		slices.Sort(way)
		want := r.want
		if len(r.also) > 0 {
			want += ", with " + strings.Join(r.also, ", ")
		}
		where := ""
		if r.simulate != nil {
			where = " (simulated)"
		}
		fmt.Fprintf(&b, "| %s%s | %s | %d of %d | %s (%s) | %s | %s |\n", r.name, where, want, right, r.runs, spread(named), goal(r.goal), strings.Join(way, ", "), spread(back))
	}
	for _, name := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Fprintf(&b, "not made on %s: %s: %s\n", lab.RuntimeColumn(), name, skipped[name])
	}
	fmt.Print("\n" + b.String())
	keepResults()
}

// resultsEnv names the directory for the results.
const resultsEnv = "PLEGD_FAULTS_RESULTS"

// commit is what is tested, as the tree was when the tests began.
var commit = sync.OnceValue(func() string {
	out, _ := exec.Command("git", "describe", "--always", "--dirty", "--exclude", "*").Output()
	return strings.TrimSpace(string(out))
})

// keepResults writes what was measured where resultsEnv says.
func keepResults() {
	dir := os.Getenv(resultsEnv)
	if dir == "" {
		return
	}
	for _, r := range table {
		name := r.name
		if r.incident != "" {
			name = r.incident + ": " + name
		}
		c := newCase(r.at, name, r.simulate != nil)
		c.Want, c.Goal = strings.Join(append([]string{r.want}, r.also...), ", with "), r.goal.Seconds()
		for _, one := range r.results {
			c.Runs = append(c.Runs, results.Run{Seconds: secondsOrNil(one.named), Wrong: one.wrong})
		}
		if err := results.Write(dir, c); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// newCase is a case on the runtime of this run.
func newCase(place int, name string, simulated bool) *results.Case {
	c := &results.Case{Place: place, Name: name, Runtime: lab.RuntimeColumn(), Version: lab.RuntimeVersion(), Commit: commit(), Date: time.Now().UTC()}
	if simulated {
		c.Runtime, c.Version = "simulated", "plegd simulate and stand-ins"
	}
	return c
}

func secondsOrNil(d time.Duration) *float64 {
	if d < 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}

func goal(d time.Duration) string { return fmt.Sprintf("%.3g", d.Seconds()) }

// spread is the median and the most of some times. What never came is more than
// any time.
func spread(d []time.Duration) string {
	d = slices.Clone(d)
	for i := range d {
		if d[i] < 0 {
			d[i] = time.Duration(1<<63 - 1)
		}
	}
	slices.Sort(d)
	return seconds(d[len(d)/2]) + ", " + seconds(d[len(d)-1])
}

func seconds(d time.Duration) string {
	if d < 0 || d == time.Duration(1<<63-1) {
		return "never"
	}
	return fmt.Sprintf("%.2f", d.Seconds())
}
