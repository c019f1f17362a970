package incident

import (
	"time"

	"github.com/plegd/plegd/internal/health"
)

// SchemaVersion is the version of Incident. Fields may be added under one
// version; it grows when one is renamed, removed or changes meaning.
const SchemaVersion = 1

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
	// Interrupted: the node was booted anew while it was open. Nobody knows when
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

// ReasonTimes tells of one reason when it stood.
type ReasonTimes struct {
	ID       string          `json:"id"`
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
	// FactsSchema is health.FactsSchema of the facts in the timeline.
	FactsSchema int `json:"facts_schema"`
	// Revision counts the versions of this file, from 1.
	Revision int `json:"revision"`
	// Updated is when plegd last looked.
	Updated time.Time `json:"updated"`
	// BootID is the boot that it happened in; OpenedMonotonic and
	// UpdatedMonotonic are the moments on CLOCK_MONOTONIC of that boot, in
	// nanoseconds.
	BootID           string        `json:"boot_id"`
	OpenedMonotonic  time.Duration `json:"opened_monotonic_ns"`
	UpdatedMonotonic time.Duration `json:"updated_monotonic_ns"`
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
	Relists []Relist `json:"relists"`
	// Timeline holds the onset, each change of the verdict, and the end.
	Timeline []Moment `json:"timeline"`
}

// Gap is a time in which plegd was not running.
type Gap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Relist is one relist with its calls. Times are seconds.
type Relist struct {
	Start          time.Time `json:"start"`
	Seconds        float64   `json:"seconds"`
	ListPodSandbox float64   `json:"list_podsandbox_seconds"`
	ListContainers float64   `json:"list_containers_seconds"`
	// Serial is what it would have taken one call after another.
	Serial float64 `json:"serial_seconds"`
	// Changed counts the pods with events, Inspected those inspected, Failed how
	// many of these failed.
	Changed   int `json:"changed"`
	Inspected int `json:"inspected"`
	Failed    int `json:"failed"`
	// Slowest are the slowest inspections of pods in it, a few.
	Slowest []health.PodInspection `json:"slowest,omitempty"`
	// Err is why a list failed; null after success.
	Err *health.CallError `json:"err"`
}

// Moment is one judgement: what was said, and everything that it was made from.
type Moment struct {
	At time.Time `json:"at"`
	// Offset is the time since the incident opened, in seconds.
	Offset float64 `json:"offset_seconds"`
	// Verdict is what was said; Previous what was said just before it, which
	// health.Judge takes as its hysteresis; Facts is what it was made from. All
	// times in them are moved to the clock of At, so that a clock that was
	// stepped meanwhile does not matter.
	Verdict  *health.Verdict `json:"verdict"`
	Previous *health.Verdict `json:"previous"`
	Facts    *health.Facts   `json:"facts"`
}
