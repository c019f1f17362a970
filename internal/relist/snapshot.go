package relist

import (
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// recentLists is the number of list times in a snapshot.
const recentLists = 16

// Snapshot is the state of the loop. It never changes; the loop publishes a new
// one at every change of phase. Its inspections are updated atomically.
type Snapshot struct {
	// Attempts counts the relists started. Ready is true from the end of the first one on, or
	// once it has been under way for two periods.
	Attempts uint64
	Ready    bool
	// Relist is the relist under way, zero between two.
	Relist underWay
	// Period is the time from the end of a relist to the start of the next one.
	Period time.Duration
	// Evented is true while the loop relies on events.
	Evented bool
	// Inspections are those of the relist under way in their order, nil before
	// they begin. Extra are those made beside the one under way, as evidence.
	Inspections, Extra []*Inspection
	// LastSeen is the start of the last relist whose lists succeeded: the time that
	// the kubelet's health check uses.
	LastSeen time.Time
	// Beside are the lists made for diagnosis while no relist lists.
	Beside Listing
	// Listed is the start of the last lists that succeeded, in a relist or beside.
	Listed time.Time
	// AnsweredSince is the end of the first lists that succeeded after a failure,
	// or of the last ones that hung. Zero while lists fail, or never failed.
	AnsweredSince time.Time
	// Changes counts the relists that found a pod changed.
	Changes uint64
	// Last is the last relist that ended, nil before the first.
	Last *Result
	// Failures counts the failed relists since the last successful one.
	Failures int
	// Lists are the times of both lists in the recent successful pairs, oldest
	// first.
	Lists []time.Duration
	// Reinspect counts the pods that wait for reinspection.
	Reinspect int
	// Pods counts the pods and containers of the last lists, nil before the first.
	Pods *facts.Pods
}

// underWay is a relist under way, without counts of pods.
type underWay struct {
	facts.InFlight

	throttledBefore time.Duration // the loop's Throttled when the phase began
}

// shown returns what is under way as of a moment, when the loop's Throttled is throttled.
func (u underWay) shown(t time.Time, throttled time.Duration) *facts.InFlight {
	u.Throttled = heldFor(t.Sub(u.PhaseStart), throttled-u.throttledBefore)
	return &u.InFlight
}

// heldFor returns how much of the time that a call has been under way plegd's own CPU quota has held it. The quota's time
// may be counted for each CPU. A tenth of the time remains: a call that hangs must be found by a throttled plegd, too.
func heldFor(passed, throttled time.Duration) time.Duration {
	return max(0, min(throttled, passed/10*9))
}

// Listing is a pair of lists beside the relists.
type Listing struct {
	underWay // zero between two

	// Failures counts the failed pairs since a list last succeeded, Last is the
	// last of them.
	Failures int
	Last     *Result
}

// Result is a relist that ended.
type Result struct {
	facts.RelistResult

	// Inspections holds every inspection of the relist.
	Inspections []*Inspection
	// throttled is the loop's Throttled when the relist began.
	throttled time.Duration
}
