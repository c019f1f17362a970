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

	"github.com/plegd/plegd/internal/facts"
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
	Duration float64     `json:"duration_seconds"`
	State    facts.State `json:"state"` // the worst one
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
	Offset   float64         `json:"offset_seconds"`
	Snapshot *facts.Snapshot `json:"snapshot"`
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
		s := m.Snapshot
		end := i.Duration
		if n+1 < len(i.Timeline) {
			end = i.Timeline[n+1].Offset
		}
		if s.State.Rank() > i.State.Rank() {
			i.State = s.State
		}
		i.KubeletMessage = cmp.Or(s.KubeletMessage, i.KubeletMessage)
		for _, a := range s.Active {
			i.addReason(a, a.ID == s.Reason, end-m.Offset)
		}
	}
	if len(i.Reasons) > 0 {
		i.Reason = slices.MaxFunc(i.Reasons, func(a, b ReasonTimes) int { return cmp.Compare(a.Primary, b.Primary) }).ID
	}
}

// addReason adds a reason that was active for a time in seconds.
func (i *Incident) addReason(a facts.Active, primary bool, seconds float64) {
	known := slices.IndexFunc(i.Reasons, func(r ReasonTimes) bool { return r.ID == a.ID })
	if known < 0 && a.Severity == facts.SeverityInfo {
		return
	}
	if known < 0 {
		known = len(i.Reasons)
		i.Reasons = append(i.Reasons, ReasonTimes{ID: a.ID})
	}
	if primary {
		i.Reasons[known].Primary += seconds
	}
}

// Evidence returns the snapshot that shows most of what the incident's reason was about: of the
// moments at which it was the primary one, the first with the longest chain that ends at a
// culprit. A later chain may lead elsewhere once the fault is over. It is nil without moments.
func (i *Incident) Evidence() *facts.Snapshot {
	var best *facts.Snapshot
	for _, m := range i.Timeline {
		if best == nil || i.weight(m.Snapshot) > i.weight(best) {
			best = m.Snapshot
		}
	}
	return best
}

// weight is how much a snapshot shows of the incident's reason.
func (i *Incident) weight(s *facts.Snapshot) int {
	if s.Reason != i.Reason {
		return 0
	}
	weight := 1
	if s.Culprit != nil {
		weight += 1 + len(s.Chain)
		if s.ChainEnd == "" {
			weight += facts.MaxLinks
		}
	}
	return weight
}

var validID = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6}$`)

func newID(opened time.Time) string {
	return fmt.Sprintf("%s-%06x", opened.UTC().Format("20060102T150405Z"), rand.N(1<<24))
}

// Difference is a moment of an incident that today's classifier judges differently.
type Difference struct {
	Index  int     `json:"index"` // of the timeline
	Offset float64 `json:"offset_seconds"`
	// Recorded is the verdict of then, Judged today's.
	Recorded *facts.Verdict `json:"was"`
	Judged   *facts.Verdict `json:"is"`
}

// Replay judges the facts of each moment again, given the verdict that stood before
// it. It returns the moments whose verdict differs in its state, its primary reason
// or its active reasons, and the number of moments judged. Moments without facts, and
// those whose verdict was held, are skipped.
func Replay(i *Incident) (different []Difference, judged int) {
	for n := range i.Timeline {
		s := i.Timeline[n].Snapshot
		if s.At.IsZero() || s.Held {
			continue
		}
		judged++
		previous := s.Previous
		unknown := func(a facts.Active) bool { return !health.Known(a.ID) }
		if previous != nil && slices.ContainsFunc(previous.Active, unknown) {
			previous = nil // it has reasons that this classifier does not have
		}
		recorded := &s.Verdict
		judgement := health.Judge(&s.Facts, s.At, previous)
		if recorded.State != judgement.State || recorded.Reason != judgement.Reason || !slices.Equal(ids(recorded), ids(judgement)) {
			different = append(different, Difference{
				Index: n, Offset: i.Timeline[n].Offset, Recorded: recorded, Judged: judgement,
			})
		}
	}
	return different, judged
}

// ids returns the active reasons, sorted by name.
func ids(v *facts.Verdict) []string {
	out := make([]string, 0, len(v.Active))
	for _, a := range v.Active {
		out = append(out, a.ID)
	}
	slices.Sort(out)
	return out
}
