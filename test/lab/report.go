//go:build e2e

package lab

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// reportEnv names a file that the measured values are written to.
const reportEnv = "PLEGD_E2E_REPORT"

var report struct {
	sync.Mutex
	notes []string
}

// Report adds a measured value to the report at the end.
func Report(t testing.TB, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	t.Log(line)
	report.Lock()
	defer report.Unlock()
	report.notes = append(report.notes, line)
}

// printReport prints the measured values. The go command shows them with -v, or when a
// test fails; a file gets them always.
func printReport() {
	text := strings.Join(report.notes, "\n") + "\n"
	fmt.Print("\n" + text)
	if path := os.Getenv(reportEnv); path != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
