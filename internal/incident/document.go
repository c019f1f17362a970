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
	"regexp"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// Outcome is how an incident ended.
type Outcome string

// The outcomes of an incident. It is interrupted if plegd stopped, or the node rebooted,
// while it was open: Closed is the time of the last write then.
const (
	Open        Outcome = "open"
	Recovered   Outcome = "recovered"
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
}

// ReasonTimes holds for how long a reason was the primary one, in seconds.
type ReasonTimes struct {
	ID      string  `json:"id"`
	Primary float64 `json:"primary_seconds"`
}

// Incident is the content of an incident's file and of /api/v1/incidents/{id}.
type Incident struct {
	Summary
	Updated time.Time `json:"updated"` // time of this version
	// KubeletMessage is the last message of a NotReady node, empty if it stayed Ready.
	KubeletMessage string `json:"kubelet_message"`
	// Ending holds what a sample after the end shows to be different from before, as
	// sentences. It is empty if nothing is.
	Ending []string `json:"ending"`
	// TimelineDropped is the number of moments left out of the middle of Timeline.
	TimelineDropped int `json:"timeline_dropped"`
	// Timeline holds the onset, each change of the verdict, and the end.
	Timeline []Moment `json:"timeline"`
}

// Moment is one judgement of the timeline. Offset is since the incident opened.
type Moment struct {
	Offset   float64          `json:"offset_seconds"`
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
	for n, m := range i.Timeline {
		s, until := m.Snapshot, i.Duration
		if n+1 < len(i.Timeline) {
			until = i.Timeline[n+1].Offset
		}
		if s.State.Rank() > i.State.Rank() {
			i.State = s.State
		}
		i.KubeletMessage = cmp.Or(s.KubeletMessage, i.KubeletMessage)
		for _, a := range s.Active {
			at := slices.IndexFunc(i.Reasons, func(r ReasonTimes) bool { return r.ID == a.ID })
			if at < 0 && a.Severity != health.SeverityInfo {
				at = len(i.Reasons)
				i.Reasons = append(i.Reasons, ReasonTimes{ID: a.ID})
			}
			if at >= 0 && a.ID == s.Reason {
				i.Reasons[at].Primary += until - m.Offset
			}
		}
	}
	longest := -1.0
	for _, r := range i.Reasons {
		if r.Primary > longest {
			i.Reason, longest = r.ID, r.Primary
		}
	}
}

var validID = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6}$`)

// ValidID reports whether a text has the form of an incident's id.
func ValidID(id string) bool { return validID.MatchString(id) }

func newID(opened time.Time) string {
	return fmt.Sprintf("%s-%06x", opened.UTC().Format("20060102T150405Z"), rand.N(1<<24))
}
