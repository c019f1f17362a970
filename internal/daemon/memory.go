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
	// garbage is how much the heap may grow between two collections. Go's own
	// percentage of what is live would be 25 MB at 5000 pods, and so little at 10
	// that a scrape costs two collections.
	garbage = 3 << 20
	// leastPercent and mostPercent bound the percentage that follows from it.
	leastPercent, mostPercent = 10, 200
	// collectorEvery is the time between two looks at how much is live.
	collectorEvery = time.Minute
	// maxProcs is on how many CPUs plegd runs at once. It uses less than a hundredth
	// of one, and each that Go may use costs memory and, at each wake-up, a search
	// for work.
	maxProcs = 2
)

// LimitMemory sets the limits of Go's collector and scheduler for the daemon, unless
// GOMEMLIMIT or GOMAXPROCS have.
func LimitMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		goruntime.GOMAXPROCS(min(maxProcs, goruntime.NumCPU()))
	}
}

// collector keeps the garbage between two collections at about as many bytes, however
// large the heap is.
type collector struct{}

// String names the task.
func (collector) String() string { return "collector" }

// Run adjusts the collector until ctx ends, and then returns nil.
func (collector) Run(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	percent := 0
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
