package health

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/plegd/plegd/internal/facts"
)

// lines are the evidence of a reason.
type lines []string

// line returns evidence of one line.
func line(format string, args ...any) lines { return lines{fmt.Sprintf(format, args...)} }

// add appends a line, addIf appends it if a condition is true, text appends lines as they are without empty ones.
func (l *lines) add(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

func (l *lines) addIf(cond bool, format string, args ...any) {
	if cond {
		l.add(format, args...)
	}
}

func (l *lines) text(texts ...string) {
	for _, t := range texts {
		l.addIf(t != "", "%s", t)
	}
}

// ProbeText describes why a fresh dial failed.
func ProbeText(p *facts.Probe) string {
	if p.WaitsForSettings() {
		return cmp.Or(p.Detail, "connected, and no HTTP/2 SETTINGS came")
	}
	return fmt.Sprintf("%s failed: %s", p.Stage, cmp.Or(p.Detail, string(p.Cause)))
}

// ProcessText describes the descriptors and the threads of a process.
func ProcessText(p *facts.Process) string {
	var parts []string
	if p.OpenFDs >= 0 && p.MaxFDs > 0 {
		parts = append(parts, fmt.Sprintf("descriptors %d of %d", p.OpenFDs, p.MaxFDs))
	}
	if p.Stopped() {
		parts = append(parts, fmt.Sprintf("all %d threads are stopped", facts.Total(p.Threads)))
	} else if text := threadsText(p); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// threadsText describes the threads of a process in a word or two.
func threadsText(p *facts.Process) string {
	n := facts.Total(p.Threads)
	switch {
	case n == 0:
		return ""
	case p.Threads["T"] == n:
		return "threads stopped"
	case p.Threads["S"] == n:
		return "threads asleep"
	case p.Threads["D"] > 0:
		return facts.Count(p.Threads["D"], "thread", "threads") + " in D"
	case p.CPU >= .1:
		return fmt.Sprintf("%.1f cores busy", p.CPU)
	}
	return facts.Count(p.Threads["R"], "thread", "threads") + " running"
}
