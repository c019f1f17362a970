package incident

import (
	"slices"
	"time"

	"github.com/plegd/plegd/internal/health"
)

const (
	// maxMoments bounds a timeline. The first keepFirst moments always stay.
	maxMoments = 64
	// maxReasons bounds the reasons of one incident; the table has fewer.
	maxReasons = 64
)

// story is an incident that is open, or closed and not stored yet.
type story struct {
	doc             Incident
	opened, updated time.Time // with monotonic readings
	recovered       time.Time // since when the verdict has been healthy; zero while it is not
	// noted is the verdict of the last moment, judged the newest one.
	noted, judged *health.Verdict
	ending        ending
	// written is the time of the last write, zero for none; writtenReason was the
	// primary reason then.
	written       time.Time
	writtenReason string
}

// hear updates the times of reasons, the worst state and the kubelet's message. If
// the verdict changed, it adds a moment to the timeline and returns true.
func (s *story) hear(snapshot *health.Snapshot) bool {
	now, f, v := snapshot.At, &snapshot.Facts, &snapshot.Verdict
	if s.judged != nil {
		s.count(s.judged, now.Sub(s.updated))
	}
	s.judged, s.updated = v, now
	if v.State.Rank() > s.doc.State.Rank() {
		s.doc.State = v.State
	}
	if v.KubeletMessage != "" {
		s.doc.KubeletMessage = v.KubeletMessage
	}
	if f.Endpoint.Path != "" {
		s.doc.Endpoint = f.Endpoint.Path
	}
	if f.Runtime.Name != "" {
		s.doc.Runtime = f.Runtime
	}
	at := now.Sub(s.opened).Seconds()
	for i := range v.Active {
		s.reason(&v.Active[i], at)
	}
	if v.State != health.StateHealthy {
		s.ending.observe(f)
	}
	if !changed(s.noted, v) {
		return false
	}
	s.note(snapshot)
	return true
}

// reason stores that a reason is active now. Reasons of severity info are left out.
func (s *story) reason(a *health.Active, at float64) {
	if a.Severity == health.SeverityInfo {
		return
	}
	i := slices.IndexFunc(s.doc.Reasons, func(r ReasonTimes) bool { return r.ID == a.ID })
	if i < 0 {
		if len(s.doc.Reasons) == maxReasons {
			return
		}
		i = len(s.doc.Reasons)
		s.doc.Reasons = append(s.doc.Reasons, ReasonTimes{ID: a.ID, Severity: a.Severity, First: at})
	}
	r := &s.doc.Reasons[i]
	r.Last = at
	if a.Severity == health.SeverityCritical {
		r.Severity = a.Severity
	}
}

// count adds the time for which a verdict stood.
func (s *story) count(v *health.Verdict, d time.Duration) {
	for i := range s.doc.Reasons {
		r := &s.doc.Reasons[i]
		if slices.ContainsFunc(v.Active, func(a health.Active) bool { return a.ID == r.ID }) {
			r.Active += d.Seconds()
		}
		if v.Reason == r.ID {
			r.Primary += d.Seconds()
		}
	}
}

// note adds a moment to the timeline.
func (s *story) note(snapshot *health.Snapshot) {
	s.noted = &snapshot.Verdict
	t := append(s.doc.Timeline, Moment{Offset: snapshot.At.Sub(s.opened).Seconds(), Snapshot: snapshot})
	if len(t) > maxMoments {
		t = slices.Concat(t[:keepFirst], t[keepFirst+1:])
		s.doc.TimelineDropped++
	}
	s.doc.Timeline = t
}

// mainReason returns the primary reason that stood longest, or the present one.
func (s *story) mainReason() string {
	best, id := 0.0, ""
	for _, r := range s.doc.Reasons {
		if r.Primary > best {
			best, id = r.Primary, r.ID
		}
	}
	if id == "" && s.judged != nil {
		id = s.judged.Reason
	}
	if id == "" && len(s.doc.Reasons) > 0 {
		id = s.doc.Reasons[0].ID
	}
	return id
}

func (s *story) summary() Summary {
	out := s.doc.Summary
	out.Reasons = slices.Clone(s.doc.Reasons)
	out.Reason, out.Began = s.mainReason(), s.opened
	end := s.updated
	if !s.recovered.IsZero() {
		end = s.recovered
	}
	out.Duration = end.Sub(s.opened).Seconds()
	return out
}

// document returns a copy that later judgements do not change.
func (s *story) document() *Incident {
	d := s.doc
	d.Summary = s.summary()
	d.Updated = s.updated.UTC().Round(0)
	d.Timeline = slices.Clone(s.doc.Timeline)
	return &d
}

// changed reports whether b differs from a in more than its numbers.
func changed(a, b *health.Verdict) bool {
	if a == nil || a.State != b.State || a.Reason != b.Reason ||
		a.PLEGHealthy != b.PLEGHealthy || a.SyncLoopAllowed != b.SyncLoopAllowed ||
		a.RulesOK != b.RulesOK || a.NodeReady != b.NodeReady ||
		len(a.Active) != len(b.Active) || newCulprit(a.Culprit, b.Culprit) {
		return true
	}
	return slices.ContainsFunc(b.Active, func(x health.Active) bool {
		return !slices.ContainsFunc(a.Active, func(y health.Active) bool { return x.ID == y.ID })
	})
}

func newCulprit(a, b *health.Link) bool {
	return b != nil && (a == nil || a.Kind != b.Kind || a.PID != b.PID || a.Name != b.Name)
}
