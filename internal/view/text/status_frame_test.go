package text

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/viewtest"
)

var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// colourless returns a line without its colours.
func colourless(line string) string { return sgr.ReplaceAllString(line, "") }

func TestStatusFrame(t *testing.T) {
	for name, snap := range map[string]health.Snapshot{
		"starting": viewtest.Starting(), "healthy": viewtest.Healthy(), "degraded": viewtest.Degraded(), "degraded by a shim": viewtest.Stalled(), "unhealthy": viewtest.Unhealthy(),
	} {
		recent := viewtest.Recent(&snap)
		for _, size := range [][2]int{{0, 0}, {200, 80}, {80, 24}, {40, 10}, {10, 2}} {
			f := StatusFrame(new(snap), recent, FrameOptions{Color: true, Width: size[0], Height: size[1]})
			most := textWidth
			if size[0] > 0 {
				most = max(minWidth, size[0])
			}
			widest := 0
			for _, l := range f.Lines {
				widest = max(widest, utf8.RuneCountInString(colourless(l)))
			}
			if widest > most {
				t.Errorf("%s at %v: a line of %d columns", name, size, widest)
			}
			if size[0] == 200 && widest < 120 {
				t.Errorf("%s at %v: no line is longer than %d: the window is not used", name, size, widest)
			}
			if size[1] > minHeight && len(f.Lines) >= size[1] {
				t.Errorf("%s at %v: %d lines", name, size, len(f.Lines))
			}
			state, _, _ := strings.Cut(name, " ")
			if !strings.Contains(f.Lines[0], "worker-7") || !strings.Contains(f.Lines[1], strings.ToUpper(state)) {
				t.Errorf("%s at %v begins with %q", name, size, f.Lines[:2])
			}
		}
	}
	if all := strings.Join(StatusFrame(new(viewtest.Healthy()), view.Recent{}, FrameOptions{}).Lines, "\n"); strings.Contains(all, "\x1b") || strings.Contains(all, "Relists ") {
		t.Errorf("colours where none were asked for, or a plot of nothing:\n%s", all)
	}
}

// TestStatusFrameScroll scrolls through a window that is too small: its screens join to
// the whole, and the node and the verdict stay.
func TestStatusFrameScroll(t *testing.T) {
	d := new(viewtest.Degraded())
	recent := viewtest.Recent(d)
	first := StatusFrame(d, recent, FrameOptions{Width: 100, Height: 30})
	if first.MaxScroll < 10 || first.Page != 26 || !strings.Contains(first.Lines[29-1], "make the window larger") {
		t.Fatalf("%d lines can be scrolled in pages of %d: %q", first.MaxScroll, first.Page, first.Lines)
	}
	body := make([]string, first.MaxScroll+first.Page)
	for at := 0; ; at += first.Page {
		f := StatusFrame(d, recent, FrameOptions{Width: 100, Height: 30, Scroll: at, Keys: true})
		last := len(f.Lines) - 1
		if len(f.Lines) != 29 || f.Lines[0] != first.Lines[0] || f.Lines[1] != first.Lines[1] || !strings.Contains(f.Lines[last], "q quits") {
			t.Fatalf("at %d the head or the keys are gone: %q", at, f.Lines)
		}
		for i, l := range f.Lines[frameHead:last] {
			if known := body[f.Scroll+i]; known != "" && known != l {
				t.Errorf("line %d is %q and %q", f.Scroll+i, known, l)
			}
			body[f.Scroll+i] = l
		}
		if f.Scroll == f.MaxScroll {
			break
		}
	}
	all := strings.Join(body, "\n")
	for _, want := range []string{"also ShimStuck", "STUCK PODS", "FAILING PODS", "coredns-5d78c9869d-8x7zq"} {
		if !strings.Contains(all, want) {
			t.Errorf("no screen shows %q:\n%s", want, all)
		}
	}
	if f := StatusFrame(d, recent, FrameOptions{Width: 100, Height: 30, Scroll: -5}); f.Scroll != 0 {
		t.Errorf("scrolled to %d", f.Scroll)
	}
}

// TestTerminalPlot: bars and letters say the verdict of each five seconds.
func TestTerminalPlot(t *testing.T) {
	d := new(viewtest.Healthy())
	r := view.Recent{From: d.At.Add(-20 * time.Second), Bin: 5 * time.Second, Bins: []view.RelistBin{
		{},
		{Slowest: time.Millisecond, Relists: 5, State: health.StateHealthy},
		{Slowest: 30 * time.Second, Relists: 1, Failed: 1, State: health.StateDegraded},
		{Slowest: 2 * time.Millisecond, Relists: 4, State: health.StateUnhealthy},
	}}
	tw := &textWriter{width: 80}
	got := tw.plot(d, r, 1)
	// The failed relist of 30 s went through the two bins before its own.
	for i, want := range []string{"Relists    ▆▆▆▁", "Verdict      xxU", "           03:03:45"} {
		if i == 1 {
			want = "Verdict    xxxU"
		}
		if strings.TrimRight(got[i], " ") != want {
			t.Errorf("line %d is %q, want %q", i, got[i], want)
		}
	}
}

// TestChainOfAProcess: a chain that begins with a process holds up no relist.
func TestChainOfAProcess(t *testing.T) {
	s := viewtest.Stalled()
	var call, process bytes.Buffer
	if err := WriteStatusText(&call, &s, false); err != nil {
		t.Fatal(err)
	}
	s.Chain = s.Chain[len(s.Chain)-1:]
	if err := WriteStatusText(&process, &s, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(call.String(), view.KubeletLink) || strings.Contains(process.String(), view.KubeletLink) || !strings.Contains(process.String(), "<== culprit") {
		t.Errorf("from a call:\n%s\nfrom a process:\n%s", call.String(), process.String())
	}
}
