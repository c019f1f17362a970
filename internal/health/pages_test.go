package health_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/must"
	"github.com/plegd/plegd/test/viewtest"
)

// duration is the value of a threshold that is a time.
var duration = regexp.MustCompile(`^[\d.]+[hmsµ][\d.hmsµ]*$`)

// TestThresholds: a page has the numbers of its reason, and each number is of a reason.
func TestThresholds(t *testing.T) {
	for _, r := range health.Reasons() {
		var table strings.Builder
		for i, n := range r.Thresholds {
			if i == 0 {
				table.WriteString("\n|Threshold|Value|Source|\n|---|---|---|\n")
			}
			_, err := time.ParseDuration(n.Value)
			if err != nil && duration.MatchString(n.Value) {
				t.Errorf("%s: %q: %v", r.ID, n.Value, err)
			}
			table.WriteString("|" + n.What + "|" + n.Value + "|" + n.Source + "|\n")
		}
		file := viewtest.DocsDir + "reasons/" + r.ID + ".md"
		page, err := os.ReadFile(file)
		must.Do(t, err)
		front, rest, _ := strings.Cut(string(page), "\n## Next\n")
		prose, _, _ := strings.Cut(strings.TrimRight(front, "\n"), "\n\n|")
		viewtest.Golden(t, file, prose+"\n"+table.String()+"\n## Next\n"+rest)
	}
}
