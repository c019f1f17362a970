package exporter

import "github.com/plegd/plegd/internal/health"

// Causes of a dial that the runtime did not accept.
const (
	AcceptFDExhausted = "fd_exhausted"
	AcceptQueueFull   = "queue_full"
	AcceptStalled     = "stalled"
)

func acceptCauses() []string { return []string{AcceptFDExhausted, AcceptQueueFull, AcceptStalled} }

// acceptFailure returns why the runtime did not accept a fresh dial; empty if the
// dial did not fail that way. e is sampled after the dial.
func acceptFailure(p health.Probe, e *health.Evidence) string {
	switch {
	case p.OK:
		return ""
	case p.Stage == health.StageConnect && p.Cause == health.CauseQueueFull:
		return AcceptQueueFull
	case p.Stage != health.StageSettings || p.Cause != health.CauseTimeout:
		return ""
	}
	// The kernel connected and the server is silent. An empty queue means that the
	// connection was accepted and is only not answered.
	if q := e.Queue; q != nil && q.Listening && q.Length == 0 && q.At.After(p.At) {
		return ""
	}
	if proc := e.Process; proc != nil && proc.Alive && proc.MaxFDs > 0 && proc.OpenFDs >= proc.MaxFDs {
		return AcceptFDExhausted
	}
	return AcceptStalled
}
