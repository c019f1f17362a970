package health

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Seconds prints a duration with about two digits that matter: 0.4ms, 12ms, 2.3s, 47s, 2m13s, 3h04m, 2d05h.
func Seconds(d time.Duration) string {
	s := d.Seconds()
	switch {
	case s <= 0:
		return "0s"
	case s < 0.00995:
		return fmt.Sprintf("%.1fms", s*1e3)
	case s < 0.9995:
		return fmt.Sprintf("%.0fms", s*1e3)
	case s < 9.95:
		return fmt.Sprintf("%.1fs", s)
	}
	n := int64(s + 0.5)
	switch {
	case n < 60:
		return fmt.Sprintf("%ds", n)
	case n < 3600:
		return fmt.Sprintf("%dm%02ds", n/60, n%60)
	case n < 48*3600:
		return fmt.Sprintf("%dh%02dm", n/3600, n%3600/60)
	}
	return fmt.Sprintf("%dd%02dh", n/86400, n%86400/3600)
}

// Count prints a number with its noun.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// lines are the evidence of a reason.
type lines []string

// line returns evidence of one line.
func line(format string, args ...any) lines { return lines{fmt.Sprintf(format, args...)} }

// add appends a line, when appends it if cond is true, text appends lines as they are without empty ones.
func (l *lines) add(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

func (l *lines) when(cond bool, format string, args ...any) {
	if cond {
		l.add(format, args...)
	}
}

func (l *lines) text(texts ...string) {
	for _, t := range texts {
		l.when(t != "", "%s", t)
	}
}

// ProbeText describes why a fresh dial failed.
func ProbeText(p *Probe) string {
	if p.Stage == StageSettings && p.Cause == CauseTimeout {
		return cmp.Or(p.Detail, "connected, and no HTTP/2 SETTINGS came")
	}
	return fmt.Sprintf("%s failed: %s", p.Stage, cmp.Or(p.Detail, string(p.Cause)))
}

// ProcessText describes the descriptors and the threads of a process.
func ProcessText(p *Process) string {
	var parts []string
	if p.OpenFDs >= 0 && p.MaxFDs > 0 {
		parts = append(parts, fmt.Sprintf("descriptors %d of %d", p.OpenFDs, p.MaxFDs))
	}
	if p.Stopped() {
		parts = append(parts, fmt.Sprintf("all %d threads are stopped", total(p.Threads)))
	} else if text := threadsText(p); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// threadsText describes the threads of a process in a word or two.
func threadsText(p *Process) string {
	switch n := total(p.Threads); {
	case n == 0:
		return ""
	case p.Threads["T"] == n:
		return "threads stopped"
	case p.Threads["S"] == n:
		return "threads asleep"
	case p.Threads["D"] > 0:
		return Count(p.Threads["D"], "thread", "threads") + " in D"
	case p.CPU >= .1:
		return fmt.Sprintf("%.1f cores busy", p.CPU)
	}
	return Count(p.Threads["R"], "thread", "threads") + " running"
}
