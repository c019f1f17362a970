package view

import (
	"context"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
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
	// Incidents are the heads of those that are kept, newest first: the open one,
	// if there is one, before all others. They name no pod. The slice is shared
	// and must not be changed.
	Incidents []incident.Summary
}

// Incidents is where one incident with its whole story comes from.
type Incidents interface {
	// Get waits for the disk for a short while. Its error wraps
	// incident.ErrUnknown where there is none of this id.
	Get(ctx context.Context, id string) (*incident.Incident, error)
}
