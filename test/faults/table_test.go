//go:build e2e

package faults

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// row is a line of the table.
type row struct {
	*fault
	at      int // in the matrix
	runs    int
	results []result
}

// table are the rows that have a result; tableMu guards it and them.
var (
	tableMu sync.Mutex
	table   []*row
)

func newRow(at int, f *fault, runs int) *row { return &row{fault: f, at: at, runs: runs} }

func (r *row) took(one result) {
	tableMu.Lock()
	defer tableMu.Unlock()
	if r.results = append(r.results, one); len(r.results) == 1 {
		table = append(table, r)
	}
}

// printTable prints the table, and writes it where PLEGD_FAULTS_TABLE says.
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
		if r.simulate != nil || r.start != nil {
			where = " (simulated)"
		}
		fmt.Fprintf(&b, "| %s%s | %s | %d of %d | %s (%s) | %s | %s |\n", r.name, where, want, right, r.runs, spread(named), goal(r.goal), strings.Join(way, ", "), spread(back))
	}
	fmt.Print("\n" + b.String())
	if path := os.Getenv("PLEGD_FAULTS_TABLE"); path != "" {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
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
