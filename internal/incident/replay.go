package incident

import (
	"slices"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// Difference is a moment of an incident that today's classifier judges differently.
type Difference struct {
	// Index is the moment's place in the timeline, At and Offset its time.
	Index  int       `json:"index"`
	At     time.Time `json:"at"`
	Offset float64   `json:"offset_seconds"`
	// Was is the recorded verdict, Is today's.
	Was *health.Verdict `json:"was"`
	Is  *health.Verdict `json:"is"`
}

// Replay judges the facts of each moment again, with the verdict that stood
// before it, and returns the moments whose verdict differs in its state, its
// primary reason, its runner-up or its active reasons, and the number of the
// moments judged. Moments without facts are passed over.
func Replay(i *Incident) (different []Difference, judged int) {
	for n := range i.Timeline {
		m := &i.Timeline[n]
		is := again(m)
		if is == nil {
			continue
		}
		judged++
		if was := &m.Snapshot.Verdict; !sameVerdict(was, is) {
			different = append(different, Difference{Index: n, At: m.Snapshot.At, Offset: m.Offset, Was: was, Is: is})
		}
	}
	return different, judged
}

// again judges the facts of a moment again; nil where it holds none.
func again(m *Moment) *health.Verdict {
	s := m.Snapshot
	if s == nil || s.At.IsZero() {
		return nil
	}
	return health.Judge(&s.Facts, s.At, known(s.Previous, s.At))
}

// known returns a verdict as the present classifier could have given it: without
// reasons that it does not have. A file that was recorded before reasons had the
// time of their last evidence gets at for it: the verdict was given a judgement
// earlier.
func known(v *health.Verdict, at time.Time) *health.Verdict {
	if v == nil {
		return nil
	}
	out := *v
	out.Active = slices.DeleteFunc(slices.Clone(v.Active), func(a health.Active) bool { return !health.Known(a.ID) })
	for i := range out.Active {
		if out.Active[i].Seen.IsZero() {
			out.Active[i].Seen = at
		}
	}
	if !slices.ContainsFunc(out.Active, func(a health.Active) bool { return a.ID == v.Reason }) {
		out.Reason = ""
	}
	return &out
}

func sameVerdict(a, b *health.Verdict) bool {
	return a.State == b.State && a.Reason == b.Reason && slices.Equal(ids(a), ids(b))
}

// ids are the active reasons in order of their names: which is primary is
// compared by itself.
func ids(v *health.Verdict) []string {
	out := make([]string, 0, len(v.Active))
	for _, a := range v.Active {
		out = append(out, a.ID)
	}
	slices.Sort(out)
	return out
}
