package daemon

import (
	"context"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryLimit is a soft limit below the unit's MemoryMax (256 MiB,
	// deploy/systemd/plegd.service): the collector works harder before the kernel's
	// limit is met.
	memoryLimit = 96 << 20
	// garbage is how much a small heap may grow between two collections: at 110 pods
	// leastPercent would be so little that every few scrapes cost a collection.
	garbage = 2 << 20
	// leastPercent and mostPercent bound the percentage that follows from it. At 5000
	// pods 20 MB are live, half of them the buffers that lists are received into, and
	// leastPercent holds 16 MB less than Go's own; a smaller one makes scrapes dearer,
	// since each collection looks at all of the heap.
	leastPercent, mostPercent = 18, 200
	// collectorEvery is the time between two looks at how much is live.
	collectorEvery = time.Minute
	// maxProcs is on how many CPUs plegd runs at once. It uses less than a hundredth
	// of one, and with a second one each wake-up ends in a search for work.
	maxProcs = 1
)

// LimitMemory sets the limits of Go's collector and scheduler for the daemon, unless
// GOGC, GOMEMLIMIT or GOMAXPROCS have.
func LimitMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(leastPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		goruntime.GOMAXPROCS(maxProcs)
	}
}

// collector lets a small heap grow by more than leastPercent between two collections.
type collector struct{}

// String names the task.
func (collector) String() string { return "collector" }

// Run adjusts the collector until ctx ends, and then returns nil.
func (collector) Run(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	percent := leastPercent
	for wait := time.NewTimer(collectorEvery / 10); ; wait.Reset(collectorEvery) {
		select {
		case <-ctx.Done():
			return nil
		case <-wait.C:
		}
		metrics.Read(live)
		want := collectorPercent(live[0].Value.Uint64())
		if want < percent*3/4 || want > percent*4/3 {
			percent = want
			debug.SetGCPercent(percent)
		}
	}
}

// collectorPercent is the percentage of what is live that garbage is.
func collectorPercent(live uint64) int {
	return int(min(max(garbage*100/max(live, 1), leastPercent), mostPercent))
}
