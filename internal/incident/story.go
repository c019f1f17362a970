package incident

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// story is an incident in memory. What has been put into its slices is never
// changed, so that a copy of them is the story of a moment.
type story struct {
	doc Incident
	// opened is the onset on this process's clocks; updated and closed likewise,
	// closed zero while it is open.
	opened, updated, closed time.Time
	// last is the verdict at the last moment of the timeline, judged the one
	// before now, for the times of reasons.
	last, judged *health.Verdict
	judgedAt     time.Time
	// resumed is true for one of before a restart of plegd.
	resumed bool
	// version counts the changes, written is the one that is on disk.
	version, written int
	moments          []*moment
	relists          *relistsBefore
}

// relistsBefore are the relists before an incident, on the wall clock of its
// onset. Copying them is left to whoever writes them down.
type relistsBefore struct {
	raw  []health.RelistResult
	at   time.Time
	once sync.Once
	wall []health.RelistResult
}

func (b *relistsBefore) list() []health.RelistResult {
	b.once.Do(func() {
		if b.wall != nil {
			return
		}
		b.wall = make([]health.RelistResult, len(b.raw))
		for i, r := range b.raw {
			r.Start, r.End = health.Wall(b.at, r.Start), health.Wall(b.at, r.End)
			r.Slowest = slices.Clone(r.Slowest)
			for n := range r.Slowest {
				r.Slowest[n].Start = health.Wall(b.at, r.Slowest[n].Start)
			}
			b.wall[i] = r
		}
	})
	return b.wall
}

// moment is a Moment with its text, which the writer keeps.
type moment struct {
	Moment
	text []byte
}

func (m *moment) encode() ([]byte, error) {
	if m.text == nil {
		text, err := marshal(m.Moment)
		if err != nil {
			return nil, err
		}
		m.text = text
	}
	return m.text, nil
}

// changed reports whether a verdict says another thing than the one before, apart
// from its numbers.
func changed(a, b *health.Verdict) bool {
	if a == nil || a.State != b.State || a.Reason != b.Reason || a.RunnerUp != b.RunnerUp ||
		a.PLEGHealthy != b.PLEGHealthy || a.SyncLoopAllowed != b.SyncLoopAllowed || a.RulesOK != b.RulesOK || a.NodeReady != b.NodeReady ||
		len(a.Active) != len(b.Active) || newCulprit(a.Culprit, b.Culprit) {
		return true
	}
	for i := range b.Active {
		if !slices.ContainsFunc(a.Active, func(x health.Active) bool { return x.ID == b.Active[i].ID }) {
			return true
		}
	}
	return false
}

// newCulprit reports whether b is another one than a: a chain that grows changes what
// an incident is about, although its reason may stay.
func newCulprit(a, b *health.Link) bool {
	return b != nil && (a == nil || a.Kind != b.Kind || a.PID != b.PID || a.Name != b.Name)
}

// hear takes over a verdict: the times of its reasons, the worst state, the
// kubelet's message.
func (s *story) hear(snapshot *health.Snapshot) {
	now, f, v := snapshot.At, &snapshot.Facts, &snapshot.Verdict
	if s.judged != nil {
		s.count(s.judged, now.Sub(s.judgedAt))
	}
	s.judged, s.judgedAt, s.updated = v, now, now
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
		if r := s.reason(&v.Active[i], at); r != nil {
			r.Last = at
		}
	}
}

// reason returns the times of a reason, a new one when it appears; nil for those
// of severity info, and beyond the bound.
func (s *story) reason(a *health.Active, at float64) *ReasonTimes {
	if a.Severity == health.SeverityInfo {
		return nil
	}
	if i := slices.IndexFunc(s.doc.Reasons, func(r ReasonTimes) bool { return r.ID == a.ID }); i >= 0 {
		r := &s.doc.Reasons[i]
		if a.Severity == health.SeverityCritical {
			r.Severity = a.Severity
		}
		return r
	}
	if len(s.doc.Reasons) == reasonsKept {
		return nil
	}
	s.doc.Reasons = append(s.doc.Reasons, ReasonTimes{ID: a.ID, Severity: a.Severity, First: at, Last: at})
	return &s.doc.Reasons[len(s.doc.Reasons)-1]
}

// had reports whether a reason was active in it.
func (s *story) had(reason string) bool {
	return slices.ContainsFunc(s.doc.Reasons, func(r ReasonTimes) bool { return r.ID == reason })
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

// mainReason is the primary reason that stood longest; while none has stood for
// any time yet, the present one.
func (s *story) mainReason() string {
	best, id := 0.0, ""
	for _, r := range s.doc.Reasons {
		if r.Primary > best {
			best, id = r.Primary, r.ID
		}
	}
	switch {
	case id != "":
		return id
	case s.judged != nil && s.judged.Reason != "":
		return s.judged.Reason
	case len(s.doc.Reasons) > 0:
		return s.doc.Reasons[0].ID
	}
	return ""
}

// note adds a moment to the timeline.
func (s *story) note(snapshot *health.Snapshot, l *Limits) {
	s.last = &snapshot.Verdict
	s.version++
	s.moments = append(s.moments, &moment{Moment: Moment{Offset: snapshot.At.Sub(s.opened).Seconds(), Snapshot: snapshot}})
	if len(s.moments) > l.Moments {
		s.moments = slices.Concat(s.moments[:l.KeepFirst], s.moments[l.KeepFirst+1:])
		s.doc.TimelineDropped++
	}
}

// summary is the head as of now.
func (s *story) summary() Summary {
	out := s.doc.Summary
	out.Reasons = slices.Clone(s.doc.Reasons)
	out.Reason, out.Began = s.mainReason(), s.opened
	end := s.updated
	if !s.closed.IsZero() {
		end = s.closed
		at := end.UTC().Round(0)
		out.Closed = &at
	}
	out.Duration = end.Sub(s.opened).Seconds()
	return out
}

// document makes the document of a story as it is now, but for what finish adds
// to it. The caller of document holds the recorder's lock, that of finish does
// not.
func (s *story) document() (doc *Incident, moments []*moment) {
	d := s.doc
	d.Summary = s.summary()
	d.Gaps = slices.Clone(s.doc.Gaps)
	d.Updated = s.updated.UTC().Round(0)
	d.UpdatedMonotonic = s.doc.OpenedMonotonic + s.updated.Sub(s.opened)
	return &d, slices.Clone(s.moments)
}

func (s *story) finish(d *Incident) {
	d.Relists = s.relists.list()
	for _, text := range []*string{&d.KubeletMessage, &d.Endpoint, &d.Runtime.Name, &d.Runtime.Version, &d.Runtime.CRIVersion} {
		*text = bounded(*text)
	}
}

// resumed makes a story of a document again, so that it can go on or be closed.
// opened and updated are its moments on the clocks of this process.
func resumed(doc *Incident, opened, updated time.Time) *story {
	s := &story{doc: *doc, opened: opened, updated: updated, resumed: true, relists: &relistsBefore{wall: doc.Relists}}
	for _, m := range doc.Timeline {
		if m.Snapshot == nil {
			continue
		}
		s.moments = append(s.moments, &moment{Moment: m})
		s.last = &m.Snapshot.Verdict
	}
	s.doc.Relists, s.doc.Timeline = nil, nil
	if s.doc.Reasons == nil {
		s.doc.Reasons = []ReasonTimes{}
	}
	return s
}

// goOn takes the moments of a later story of the same incident, which was begun
// before this one was read from the disk.
func (s *story) goOn(later *story, l *Limits) {
	for _, m := range later.moments {
		s.hear(m.Snapshot)
		s.note(m.Snapshot, l)
	}
	if later.judged != nil {
		s.judged, s.judgedAt, s.updated = later.judged, later.judgedAt, later.updated
	}
}

// maxString bounds a text of the runtime's, in bytes.
const maxString = 2 << 10

func bounded(s string) string {
	if len(s) > maxString {
		s = s[:maxString] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
