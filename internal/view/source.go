package view

import (
	"context"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
)

// Source has the newest snapshot that the judge has published. Reading it changes
// nothing, and takes no lock.
type Source interface {
	// Snapshot returns it with its ages as of now.
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

// AsOf returns s with its ages and countdowns as of now: they come from stored
// times, so a relist that never returns shows in them although nothing is judged.
// What s points to is shared, and does not change.
func (s *Snapshot) AsOf(now time.Time) Snapshot {
	out := *s
	v := &out.Verdict
	passed := max(0, now.Sub(s.Now))
	out.Now = s.Now.Add(passed)
	if !v.LastSeen.IsZero() {
		v.LastSeenAge = out.Now.Sub(v.LastSeen)
	}
	if !v.ModelledLastSeen.IsZero() {
		v.ModelledAge = out.Now.Sub(v.ModelledLastSeen)
	}
	for _, left := range []**time.Duration{&v.RulesFailIn, &v.NotReadyIn, &v.NotReadyInLatest, &v.ReadyIn, &v.ReadyInLatest} {
		if *left != nil {
			d := max(0, **left-passed)
			*left = &d
		}
	}
	return out
}

// Incidents is where one incident with its whole story comes from.
type Incidents interface {
	// Get waits for the disk for a short while. Its error wraps
	// incident.ErrUnknown where there is none of this id.
	Get(ctx context.Context, id string) (*incident.Incident, error)
}
