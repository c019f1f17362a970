package health

import (
	"fmt"
	"strings"
)

// The phrases of this file are used by the evidence of reasons and by internal/view.

// ProbeText describes why a fresh dial failed.
func ProbeText(p *Probe) string {
	switch {
	case p.Stage == StageSettings && p.Cause == CauseTimeout && p.Detail != "":
		return p.Detail
	case p.Stage == StageSettings && p.Cause == CauseTimeout:
		return "connected, and no HTTP/2 SETTINGS came"
	case p.Detail != "":
		return fmt.Sprintf("%s failed: %s", p.Stage, p.Detail)
	default:
		return fmt.Sprintf("%s failed: %s", p.Stage, p.Cause)
	}
}

// ProcessText describes the descriptors and the threads of a process.
func ProcessText(p *Process) string {
	var parts []string
	if p.OpenFDs >= 0 && p.MaxFDs > 0 {
		parts = append(parts, fmt.Sprintf("descriptors %d of %d", p.OpenFDs, p.MaxFDs))
	}
	if p.Stopped() {
		parts = append(parts, fmt.Sprintf("all %d threads are stopped", threads(p)))
	} else if text := threadsText(p); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// threadsText describes the threads of a process in a word or two.
func threadsText(p *Process) string {
	switch n := threads(p); {
	case n == 0:
		return ""
	case p.Threads["T"] == n:
		return "threads stopped"
	case p.Threads["S"] == n:
		return "threads asleep"
	case p.Threads["D"] > 0:
		return count(p.Threads["D"], "thread", "threads") + " in D"
	case p.CPU >= .9:
		return fmt.Sprintf("%.1f cores busy", p.CPU)
	default:
		out := count(p.Threads["R"], "thread", "threads") + " running"
		if p.CPU >= .1 {
			out += fmt.Sprintf(", %.1f cores busy", p.CPU)
		}
		return out
	}
}
