//go:build e2e

package lab

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
)

// reportEnv names a file that the table of measured values is written to.
const reportEnv = "PLEGD_E2E_REPORT"

var report struct {
	sync.Mutex
	rows  [][]string
	notes []string
}

// ReportFault adds a row to the table of faults and says it in the test's log.
func ReportFault(t testing.TB, fault, reason, named, healthy string) {
	t.Helper()
	t.Logf("fault %s: named %s after %s, healthy after %s", fault, reason, named, healthy)
	report.Lock()
	defer report.Unlock()
	report.rows = append(report.rows, []string{fault, reason, named, healthy})
}

// Report adds a measured value to what is printed at the end.
func Report(t testing.TB, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	t.Log(line)
	report.Lock()
	defer report.Unlock()
	report.notes = append(report.notes, line)
}

// printReport prints what was measured. The go command shows it with -v, or
// when a test fails; a file gets it always.
func printReport() {
	report.Lock()
	defer report.Unlock()
	if len(report.rows)+len(report.notes) == 0 {
		return
	}
	var b strings.Builder
	if len(report.rows) > 0 {
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(w, "fault\tprimary reason\tnamed after\thealthy after")
		for _, row := range report.rows {
			_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		_ = w.Flush()
	}
	for _, note := range report.notes {
		b.WriteString(note + "\n")
	}
	fmt.Print("\n" + b.String())
	if path := os.Getenv(reportEnv); path != "" {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
