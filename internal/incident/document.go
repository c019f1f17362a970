// Package incident records incidents: it opens one when the verdict leaves
// healthy, keeps the snapshots of each change, and stores it in one JSON file.
//
// The judge calls it and never waits for it: files are read and written by a
// goroutine of its own, which a dead disk may block. All that it keeps is bounded.
package incident

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// SchemaVersion is the version of Incident, which is that of the snapshots in it.
const SchemaVersion = health.SchemaVersion

// Outcome is how an incident ended.
type Outcome string

// The outcomes of an incident.
const (
	Open      Outcome = "open"
	Recovered Outcome = "recovered" // the verdict was healthy again
	// Interrupted: plegd stopped, or the node rebooted, while it was open. Its
	// real end is unknown; Closed is the time of the last write.
	Interrupted Outcome = "interrupted"
)

// Summary is the head of an incident, as lists show it. Times are UTC, durations
// are seconds by the monotonic clock.
type Summary struct {
	SchemaVersion int        `json:"schema_version"`
	PlegdVersion  string     `json:"plegd_version"`
	ID            string     `json:"id"`
	Outcome       Outcome    `json:"outcome"`
	Opened        time.Time  `json:"opened"`
	Closed        *time.Time `json:"closed"` // null while it is open
	// Duration lasts until Closed, or until the last judgement.
	Duration float64      `json:"duration_seconds"`
	State    health.State `json:"state"` // the worst one
	// Reason is the primary reason that stood longest. Reasons are all reasons that
	// were active, in order of appearance, without those of severity info.
	Reason  string        `json:"reason"`
	Reasons []ReasonTimes `json:"reasons"`
	// Stored reports whether a version of it is on disk. It is true in the file.
	Stored bool `json:"stored"`
	// Began is Opened with its monotonic reading, zero if it was read from a file.
	Began time.Time `json:"-"`
}

// At returns the time of an offset in seconds since the incident opened.
func (s *Summary) At(seconds float64) time.Time {
	return s.Opened.Add(time.Duration(seconds * float64(time.Second)))
}

// ReasonTimes holds when a reason was active.
type ReasonTimes struct {
	ID       string          `json:"id"`
	Severity health.Severity `json:"severity"` // the worst one
	// First and Last are the begin of its first and the end of its last time, in
	// seconds since the incident opened. Active and Primary are the total times as an
	// active and as the primary reason.
	First   float64 `json:"first_seconds"`
	Last    float64 `json:"last_seconds"`
	Active  float64 `json:"active_seconds"`
	Primary float64 `json:"primary_seconds"`
}

// Incident is the content of an incident's file and of /api/v1/incidents/{id}.
type Incident struct {
	Summary

	Updated time.Time `json:"updated"` // time of this version
	// KubeletMessage is the last message of a NotReady node, empty if it stayed Ready.
	KubeletMessage string         `json:"kubelet_message"`
	Runtime        health.Runtime `json:"runtime"`
	// Ending holds what a sample after the end shows to be different from before, as
	// sentences. It is empty if nothing is.
	Ending []string `json:"ending"`
	// TimelineDropped is the number of moments left out of the middle of Timeline.
	TimelineDropped int `json:"timeline_dropped"`

	// Timeline holds the onset, each change of the verdict, and the end.
	Timeline []Moment `json:"timeline"`
}

// Moment is one judgement of the timeline.
type Moment struct {
	Offset   float64          `json:"offset_seconds"` // since the incident opened
	Snapshot *health.Snapshot `json:"snapshot"`
}

// shorten drops moments from the middle of the timeline until n are left.
func (i *Incident) shorten(n int) {
	if excess := len(i.Timeline) - n; excess > 0 {
		i.Timeline = slices.Concat(i.Timeline[:n/2], i.Timeline[n/2+excess:])
		i.TimelineDropped += excess
	}
}

// summarize sets the fields that the timeline shows.
func (i *Incident) summarize() {
	i.Reasons = nil
	for n := range i.Timeline {
		m, until := &i.Timeline[n], i.Duration
		if n+1 < len(i.Timeline) {
			until = i.Timeline[n+1].Offset
		}
		s := m.Snapshot
		if s.State.Rank() > i.State.Rank() {
			i.State = s.State
		}
		if s.Facts.Runtime.Name != "" {
			i.Runtime = s.Facts.Runtime
		}
		i.KubeletMessage = cmp.Or(s.KubeletMessage, i.KubeletMessage)
		for r := range s.Active {
			i.count(&s.Active[r], s.Active[r].ID == s.Reason, m.Offset, until)
		}
	}
	var longest ReasonTimes
	for _, r := range i.Reasons {
		if longest.ID == "" || r.Primary > longest.Primary {
			longest = r
		}
	}
	i.Reason = longest.ID
}

// count adds the time in which a reason was active.
func (i *Incident) count(a *health.Active, primary bool, from, until float64) {
	if a.Severity == health.SeverityInfo {
		return
	}
	at := slices.IndexFunc(i.Reasons, func(r ReasonTimes) bool { return r.ID == a.ID })
	if at < 0 {
		at = len(i.Reasons)
		i.Reasons = append(i.Reasons, ReasonTimes{ID: a.ID, Severity: a.Severity, First: from})
	}
	r := &i.Reasons[at]
	r.Last = until
	r.Active += until - from
	if primary {
		r.Primary += until - from
	}
	if a.Severity == health.SeverityCritical {
		r.Severity = a.Severity
	}
}

// idTime is the format of the time at the begin of an id.
const idTime = "20060102T150405Z"

func newID(opened time.Time) string {
	return fmt.Sprintf("%s-%06x", opened.UTC().Format(idTime), rand.N(1<<24))
}

// ValidID reports whether a text has the form of an incident's id.
func ValidID(id string) bool {
	day, rest, ok := strings.Cut(id, "-")
	if _, err := time.Parse(idTime, day); err != nil || !ok || len(rest) != 6 {
		return false
	}
	return strings.Trim(rest, "0123456789abcdef") == ""
}
