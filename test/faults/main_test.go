//go:build e2e

package faults

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/plegd/plegd/test/lab"
)

func TestMain(m *testing.M) {
	if helper := os.Getenv(helperEnv); helper != "" {
		os.Exit(helperMain(helper))
	}
	commit()
	code := lab.Main(m)
	printTable()
	os.Exit(judged(code))
}

// atLeastEnv is the share of right runs, 0 to 1, from which the matrix has passed.
// Without it every run must be right. It is for runs of the matrix alone: what
// other tests say does not count then.
const atLeastEnv = "PLEGD_FAULTS_AT_LEAST"

// judged is the exit code: that of the tests, or by the share of right runs.
func judged(code int) int {
	text := os.Getenv(atLeastEnv)
	if text == "" {
		return code
	}
	least, err := strconv.ParseFloat(text, 64)
	if err != nil || least <= 0 || least > 1 {
		fmt.Fprintf(os.Stderr, "%s: %q: want a share above 0, at most 1\n", atLeastEnv, text)
		return 1
	}
	right, all := 0, 0
	for _, r := range table {
		for _, one := range r.results {
			if all++; one.wrong == "" {
				right++
			}
		}
	}
	fmt.Printf("faults on %s: %d of %d right, wanted %.0f %%\n", lab.RuntimeColumn(), right, all, 100*least)
	if all == 0 || float64(right) < least*float64(all) {
		return 1
	}
	return 0
}
