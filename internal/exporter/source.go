package exporter

import (
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

// Source is where the exporter gets what it shows. A snapshot is made from
// stored values: it never waits for the runtime, for a relist, or for a lock
// that the relist loop waits for.
type Source interface {
	Snapshot(now time.Time) Snapshot
}

// Snapshot is what plegd knows at one moment.
type Snapshot struct {
	Now     time.Time
	Facts   health.Facts
	Verdict health.Verdict
	// Ready is true once the first relist has been attempted.
	Ready bool
	// Counted is true once a relist has succeeded; RunningPods and Containers
	// (by cri.State) are meaningless before.
	Counted     bool
	RunningPods int
	Containers  [cri.NumStates]int
}
