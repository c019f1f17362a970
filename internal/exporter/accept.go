package exporter

import "github.com/plegd/plegd/internal/facts"

// Causes of a dial that the runtime did not accept.
const (
	AcceptFDExhausted = "fd_exhausted"
	AcceptQueueFull   = "queue_full"
	AcceptStalled     = "stalled"
)

func acceptCauses() []string { return []string{AcceptFDExhausted, AcceptQueueFull, AcceptStalled} }

// acceptFailure returns why the runtime did not accept a fresh dial; empty if the
// dial did not fail that way. e is sampled after the dial.
func acceptFailure(p facts.Probe, e *facts.Evidence) string {
	switch {
	case p.OK:
		return ""
	case p.Stage == facts.StageConnect && p.Cause == facts.CauseQueueFull:
		return AcceptQueueFull
	case !p.WaitsForSettings():
		return ""
	}
	// The kernel connected and the server is silent. An empty queue means that the
	// connection was accepted and is only not answered.
	if q := e.Queue; q != nil && q.Listening && q.Length == 0 && q.At.After(p.At) {
		return ""
	}
	if e.Process != nil && e.Process.FDsExhausted() {
		return AcceptFDExhausted
	}
	return AcceptStalled
}
