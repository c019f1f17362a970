package text

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view/viewtest"
)

var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

func TestStatusFrame(t *testing.T) {
	recent := []float64{.001, .002, -30, 4, .001}
	for name, snap := range map[string]health.Snapshot{"starting": viewtest.Starting(), "healthy": viewtest.Healthy(), "degraded": viewtest.Degraded(), "unhealthy": viewtest.Unhealthy()} {
		for _, size := range [][2]int{{0, 0}, {200, 80}, {80, 24}, {40, 10}, {10, 2}} {
			lines := StatusFrame(new(snap), recent, FrameOptions{Color: true, Width: size[0], Height: size[1]})
			most := textWidth
			if size[0] > 0 {
				most = max(minWidth, min(size[0], textWidth))
			}
			for _, l := range lines {
				if n := utf8.RuneCountInString(sgr.ReplaceAllString(l, "")); n > most {
					t.Errorf("%s at %v: a line of %d columns: %q", name, size, n, l)
				}
			}
			if size[1] > 2 && len(lines) >= size[1] {
				t.Errorf("%s at %v: %d lines", name, size, len(lines))
			}
			if !strings.Contains(lines[0], "worker-7") || !strings.Contains(lines[1], strings.ToUpper(name)) {
				t.Errorf("%s at %v begins with %q", name, size, lines[:2])
			}
		}
	}
	all := strings.Join(StatusFrame(new(viewtest.Healthy()), recent, FrameOptions{}), "\n")
	if strings.Contains(all, "\x1b") {
		t.Error("colours where none were asked for")
	}
	if want := "Relists    ▁▁▆▅▁"; !strings.Contains(all, want+"\n") {
		t.Errorf("no %q in:\n%s", want, all)
	}
	if cut := strings.Join(StatusFrame(new(viewtest.Degraded()), nil, FrameOptions{Width: 80, Height: 12}), "\n"); !strings.Contains(cut, "more lines") {
		t.Errorf("nothing says that there is more:\n%s", cut)
	}
}
