//go:build e2e

package faults

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
	"github.com/plegd/plegd/test/lab/waiting"
	"github.com/plegd/plegd/test/results"
)

const (
	// atLeastEnv is the share of right runs, 0 to 1, from which the matrix has passed.
	// Without it every run must be right. It is for runs of the matrix alone: other tests
	// do not count then.
	atLeastEnv = "PLEGD_FAULTS_AT_LEAST"
	// resultsEnv names the directory for the results.
	resultsEnv = "PLEGD_FAULTS_RESULTS"
)

func TestMain(m *testing.M) {
	waiting.Main()
	commit()
	code := lab.Main(m)
	tableMu.Lock()
	defer tableMu.Unlock()
	fmt.Print(results.Table(slices.Collect(maps.Values(table))))
	for _, name := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Printf("not made on %s: %s: %s\n", runtime.Column(), name, skipped[name])
	}
	if dir := os.Getenv(resultsEnv); dir != "" {
		for _, c := range table {
			if err := results.Write(dir, c); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
	os.Exit(judged(code))
}

// judged is the exit code: that of the tests, or by the share of right runs.
func judged(code int) int {
	text := os.Getenv(atLeastEnv)
	if text == "" {
		return code
	}
	least, err := strconv.ParseFloat(text, 64)
	right, all := 0, 0
	for _, c := range table {
		for _, one := range c.Runs {
			if all++; one.Wrong == "" {
				right++
			}
		}
	}
	fmt.Printf("faults on %s: %d of %d right, wanted %s\n", runtime.Column(), right, all, text)
	if err != nil || least <= 0 || all == 0 || float64(right) < least*float64(all) {
		return 1
	}
	return 0
}

// table are the cases that have a result, by name, skipped the faults that were not made
// with the reason.
var (
	tableMu sync.Mutex
	table   = map[string]*results.Case{}
	skipped = map[string]string{}
)

// took adds a run to the table.
func (f *fault) took(place int, one result) {
	tableMu.Lock()
	defer tableMu.Unlock()
	c := table[f.name]
	if c == nil {
		name := strings.TrimPrefix(f.incident+": "+f.name, ": ")
		c = &results.Case{
			Place: place, Name: name, Want: strings.Join(append([]string{f.want}, f.also...), ", with "), Goal: f.goal.Seconds(),
			Runtime: runtime.Column(), Version: runtime.Version(), Commit: commit(), Date: time.Now().UTC(),
		}
		if f.simulate != nil {
			c.Runtime, c.Version = "simulated", "plegd simulate and stand-ins"
		}
		table[f.name] = c
	}
	run := results.Run{Wrong: one.wrong}
	if s := one.named.Seconds(); s >= 0 {
		run.Seconds = &s
	}
	c.Runs = append(c.Runs, run)
}

// tookNothing adds a run that broke off, where the test ends without a result.
func (f *fault) tookNothing(t *testing.T, place int) {
	t.Helper()
	t.Cleanup(func() {
		tableMu.Lock()
		_, ok := table[f.name]
		tableMu.Unlock()
		if !ok {
			f.took(place, result{named: -1, wrong: "it broke off"})
		}
	})
}

// commit is the tested commit, as of the start of the tests.
var commit = sync.OnceValue(func() string {
	out, _ := exec.Command("git", "describe", "--always", "--dirty", "--exclude", "*").Output()
	return strings.TrimSpace(string(out))
})

func seconds(d time.Duration) string {
	if d < 0 {
		return "never"
	}
	return fmt.Sprintf("%.2f", d.Seconds())
}
