// Package chain makes processes wait for each other in every way that plegd
// follows, for real, and compares what the walker of internal/evidence/chain says
// with who really waits for whom.
package chain
