package incident

import (
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// maxMoments bounds a timeline. The first and the newest moments stay.
const maxMoments = 64

// story is an incident that is open.
type story struct {
	Incident
	updated   time.Time // of the newest judgement, with its monotonic reading
	recovered time.Time // since when the verdict has been healthy; zero while it is not
	noted     string    // the newest moment without its numbers
	culprit   string
	ending    ending
	// queued is the time of the last version that was queued to be written, and
	// queuedReason the primary reason then.
	queued       time.Time
	queuedReason string
}

// add takes a judgement. It adds a moment to the timeline if more than numbers
// changed, and returns whether it did.
func (s *story) add(snapshot *health.Snapshot) bool {
	v := &snapshot.Verdict
	s.updated = snapshot.At
	if v.State != health.StateHealthy {
		s.ending.observe(&snapshot.Facts)
	}
	if c := v.Culprit; c != nil { // a chain that is lost for a moment is no change
		s.culprit = fmt.Sprint(c.Kind, c.PID, c.Name)
	}
	now := fmt.Sprint(v.State, v.Reason, v.PLEGHealthy, v.SyncLoopAllowed, v.RulesOK, v.NodeReady, ids(v), s.culprit)
	if now == s.noted {
		return false
	}
	s.noted = now
	s.note(snapshot)
	return true
}

// note adds a moment to the timeline.
func (s *story) note(snapshot *health.Snapshot) {
	s.Timeline = append(s.Timeline, Moment{Offset: snapshot.At.Sub(s.Began).Seconds(), Snapshot: snapshot})
	s.shorten(maxMoments)
}

// document returns the incident as of now, which later judgements do not change.
func (s *story) document() *Incident {
	d := s.Incident
	end := s.updated
	if !s.recovered.IsZero() {
		end = s.recovered
	}
	d.Duration, d.Updated = end.Sub(s.Began).Seconds(), s.updated.UTC().Round(0)
	d.Timeline = slices.Clone(s.Timeline)
	d.summarize()
	return &d
}
