package daemon

import (
	"os"
	"runtime/debug"
)

// memoryLimit is a soft limit below the unit's MemoryMax (256 MiB,
// deploy/systemd/plegd.service): the collector works harder before the kernel's
// limit is met.
const memoryLimit = 96 << 20

// gcPercent lets the heap grow by two fifths between two collections: at 5000
// pods, with 25 MB of heap, that holds 15 MB less than Go's own percentage. In a
// steady state there is hardly any garbage but a scrape's, which a smaller
// percentage would make dearer.
const gcPercent = 40

// LimitMemory sets the collector's limits for the daemon, unless GOMEMLIMIT or
// GOGC have.
func LimitMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
