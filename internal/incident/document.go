package incident

import (
	"time"

	"github.com/plegd/plegd/internal/health"
)

// SchemaVersion is the version of Incident, which is that of the snapshots in it.
const SchemaVersion = health.SchemaVersion

// Outcome says how an incident ended.
type Outcome string

// The outcomes of an incident.
const (
	// Open: it has not ended.
	Open Outcome = "open"
	// Recovered: the verdict was healthy again.
	Recovered Outcome = "recovered"
	// Shutdown: it opened within shutdownWithin before plegd was told to stop,
	// as when a node shuts down and stops the runtime first.
	Shutdown Outcome = "shutdown"
	// Interrupted: the node was rebooted while it was open. Nobody knows when
	// it ended; closed is when plegd last looked.
	Interrupted Outcome = "interrupted"
)

// Summary is the head of an incident: what a list shows. Times are RFC 3339 in
// UTC, durations are seconds by the monotonic clock.
type Summary struct {
	SchemaVersion int    `json:"schema_version"`
	ID            string `json:"id"`
	// Outcome is open until it is closed.
	Outcome Outcome    `json:"outcome"`
	Opened  time.Time  `json:"opened"`
	Closed  *time.Time `json:"closed"`
	// Duration is until it was closed, or until Updated.
	Duration float64 `json:"duration_seconds"`
	// State is the worst state that it was in.
	State health.State `json:"state"`
	// Reason is the primary reason that stood longest, Reasons every reason that
	// was active, in order of their appearance.
	Reason  string        `json:"reason"`
	Reasons []ReasonTimes `json:"reasons"`
	// Episodes is how often the verdict left healthy: more than 1 only where one
	// of its reasons was back within seconds, and where it did so more often than
	// incidents may be opened.
	Episodes int `json:"episodes"`
	// Stored is true once a version of it is on disk for good. In the file
	// itself it is true.
	Stored bool `json:"stored"`
	// Began is Opened by this process's clocks, with its monotonic reading; zero
	// for an incident that was read from a file.
	Began time.Time `json:"-"`
}

// At returns the moment that is so many seconds after the onset.
func (s *Summary) At(seconds float64) time.Time {
	return s.Opened.Add(time.Duration(seconds * float64(time.Second)))
}

// ReasonTimes tells of one reason when it stood.
type ReasonTimes struct {
	ID string `json:"id"`
	// Severity is the worst that it had.
	Severity health.Severity `json:"severity"`
	// First and Last are when it was seen first and last, in seconds since the
	// incident opened; Active for how long it stood, Primary for how long as the
	// primary one.
	First   float64 `json:"first_seconds"`
	Last    float64 `json:"last_seconds"`
	Active  float64 `json:"active_seconds"`
	Primary float64 `json:"primary_seconds"`
}

// Incident is one incident with its whole story: the content of its file, and
// what /api/v1/incidents/{id} answers. The long parts come last, so that the
// head can be read alone.
type Incident struct {
	Summary

	PlegdVersion string `json:"plegd_version"`
	// Revision counts the versions of this file, from 1.
	Revision int `json:"revision"`
	// Updated is when plegd last looked.
	Updated time.Time `json:"updated"`
	// BootID is the boot that it happened in; OpenedMonotonic and
	// UpdatedMonotonic are the moments on CLOCK_MONOTONIC of that boot.
	BootID           string        `json:"boot_id"`
	OpenedMonotonic  time.Duration `json:"opened_monotonic_seconds"`
	UpdatedMonotonic time.Duration `json:"updated_monotonic_seconds"`
	// KubeletMessage is the last one that the kubelet would have put on the
	// Ready condition; empty when the node stayed Ready.
	KubeletMessage string         `json:"kubelet_message"`
	Endpoint       string         `json:"endpoint"`
	Runtime        health.Runtime `json:"runtime"`
	// Gaps are the times in which plegd was not running.
	Gaps []Gap `json:"gaps"`
	// TimelineDropped counts the moments that were left out of the middle of
	// Timeline.
	TimelineDropped int `json:"timeline_dropped"`

	// Relists are the last ones before it, oldest first.
	Relists []health.RelistResult `json:"relists"`
	// Timeline holds the onset, each change of the verdict, and the end.
	Timeline []Moment `json:"timeline"`
}

// Gap is a time in which plegd was not running.
type Gap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Moment is one judgement of the timeline.
type Moment struct {
	// Offset is the time since the incident opened, in seconds.
	Offset float64 `json:"offset_seconds"`
	// Snapshot is the verdict, the verdict before it, and the facts that it was
	// made from. Its times are on the wall clock of its moment, so that a clock that
	// was stepped meanwhile does not matter.
	Snapshot *health.Snapshot `json:"snapshot"`
}
