package facts

import "time"

// Finding is what an unfinished obligation towards the runtime, its shims or a hop behind it leads
// to: bytes that nobody reads, a pipe that somebody else keeps open, a killed process that does not end.
type Finding struct {
	// Reason is the id of the reason that it proves.
	Reason string `json:"reason"`
	// Since is when the obligation was first seen, or when the process began that keeps it.
	Since time.Time `json:"since,omitzero"`
	// Chain begins with who waits, and ends with the culprit.
	Chain Chain `json:"chain"`
}
