package daemon

import (
	"os"
	"runtime/debug"
)

// memoryLimit is a soft limit below the unit's MemoryMax (256 MiB,
// deploy/systemd/plegd.service): the collector works harder before the kernel's
// limit is met.
const memoryLimit = 96 << 20

// gcPercent lets the heap grow by half between two collections. In a steady
// state there is hardly any garbage, so a smaller heap costs next to nothing.
const gcPercent = 50

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
