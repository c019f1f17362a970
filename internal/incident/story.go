package incident

import (
	"slices"
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

// relistsBefore are the relists before an incident, copied once when somebody
// wants to write them down.
type relistsBefore struct {
	raw   []Relist
	at    time.Time
	once  sync.Once
	plain []Relist
}

func (b *relistsBefore) list() []Relist {
	b.once.Do(func() {
		if b.plain == nil {
			b.plain = *written(&b.raw, b.at)
		}
		if b.plain == nil {
			b.plain = []Relist{}
		}
	})
	return b.plain
}

// moment is a Moment to be: the copying is left to whoever wants to write it.
type moment struct {
	at                time.Time
	offset            time.Duration
	facts             health.Facts
	verdict, previous *health.Verdict

	once  sync.Once
	plain *Moment
	text  []byte // plain as JSON, for the writer alone
}

func (m *moment) document() *Moment {
	m.once.Do(func() {
		if m.plain == nil {
			m.plain = &Moment{
				At: m.at.UTC().Round(0), Offset: m.offset.Seconds(),
				Verdict: written(m.verdict, m.at), Previous: written(m.previous, m.at), Facts: written(&m.facts, m.at),
			}
		}
	})
	return m.plain
}

func (m *moment) encode() ([]byte, error) {
	if m.text == nil {
		text, err := marshal(m.document())
		if err != nil {
			return nil, err
		}
		m.text = text
	}
	return m.text, nil
}

// changed tells whether a verdict says another thing than the one before, apart
// from its numbers.
func changed(a, b *health.Verdict) bool {
	if a == nil || a.State != b.State || a.Reason != b.Reason || a.RunnerUp != b.RunnerUp ||
		a.PLEGHealthy != b.PLEGHealthy || a.SyncLoopAllowed != b.SyncLoopAllowed || a.RulesOK != b.RulesOK || a.NodeReady != b.NodeReady ||
		len(a.Active) != len(b.Active) {
		return true
	}
	for i := range b.Active {
		if !slices.ContainsFunc(a.Active, func(x health.Active) bool { return x.ID == b.Active[i].ID }) {
			return true
		}
	}
	return false
}

// hear takes over a verdict: the times of its reasons, the worst state, the
// kubelet's message.
func (s *story) hear(now time.Time, f *health.Facts, v *health.Verdict) {
	if s.judged != nil {
		s.count(s.judged, now.Sub(s.judgedAt))
	}
	s.judged, s.judgedAt, s.updated = v, now, now
	if rank(v.State) > rank(s.doc.State) {
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
		return &s.doc.Reasons[i]
	}
	if len(s.doc.Reasons) == reasonsKept {
		return nil
	}
	s.doc.Reasons = append(s.doc.Reasons, ReasonTimes{ID: a.ID, Severity: a.Severity, First: at, Last: at})
	return &s.doc.Reasons[len(s.doc.Reasons)-1]
}

// had tells whether a reason was active in it.
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
func (s *story) note(now time.Time, f *health.Facts, previous, v *health.Verdict, l *Limits) {
	s.last = v
	s.version++
	s.moments = append(s.moments, &moment{at: now, offset: now.Sub(s.opened), facts: *f, verdict: v, previous: previous})
	if len(s.moments) > l.Moments {
		s.moments = slices.Concat(s.moments[:l.KeepFirst], s.moments[l.KeepFirst+1:])
		s.doc.TimelineDropped++
	}
}

// rank orders states from good to bad.
func rank(s health.State) int {
	return slices.Index([]health.State{health.StateHealthy, health.StateStarting, health.StateDegraded, health.StateUnhealthy}, s)
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
	d.KubeletMessage, d.Endpoint = bounded(d.KubeletMessage), bounded(d.Endpoint)
	d.Runtime = *written(&d.Runtime, d.Updated)
}

// resumed makes a story of a document again, so that it can go on or be closed.
// opened and updated are its moments on the clocks of this process.
func resumed(doc *Incident, opened, updated time.Time) *story {
	s := &story{doc: *doc, opened: opened, updated: updated, resumed: true, relists: &relistsBefore{plain: doc.Relists}}
	for i := range doc.Timeline {
		m := &doc.Timeline[i]
		s.moments = append(s.moments, &moment{
			at: opened.Add(time.Duration(m.Offset * float64(time.Second))), offset: time.Duration(m.Offset * float64(time.Second)),
			verdict: m.Verdict, previous: m.Previous, plain: m,
		})
		s.last = m.Verdict
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
		s.hear(m.at, &m.facts, m.verdict)
		s.note(m.at, &m.facts, m.previous, m.verdict, l)
	}
	if later.judged != nil {
		s.judged, s.judgedAt, s.updated = later.judged, later.judgedAt, later.updated
	}
}
