package incident

import (
	"slices"

	"github.com/plegd/plegd/internal/health"
)

// Difference is a moment of an incident that today's classifier judges differently.
type Difference struct {
	// Index is the moment's place in the timeline, Offset its time.
	Index  int     `json:"index"`
	Offset float64 `json:"offset_seconds"`
	// Was is the recorded verdict, Is today's.
	Was *health.Verdict `json:"was"`
	Is  *health.Verdict `json:"is"`
}

// Replay judges the facts of each moment again, given the verdict that stood before
// it. It returns the moments whose verdict differs in its state, its primary reason
// or its active reasons, and the number of moments judged. Moments without facts are
// skipped.
func Replay(i *Incident) (different []Difference, judged int) {
	for n := range i.Timeline {
		s := i.Timeline[n].Snapshot
		if s.At.IsZero() {
			continue
		}
		judged++
		was, is := &s.Verdict, health.Judge(&s.Facts, s.At, known(s.Previous))
		if was.State != is.State || was.Reason != is.Reason || !slices.Equal(ids(was), ids(is)) {
			different = append(different, Difference{Index: n, Offset: i.Timeline[n].Offset, Was: was, Is: is})
		}
	}
	return different, judged
}

// known returns a verdict, or nil for one with reasons that the present classifier does
// not have.
func known(v *health.Verdict) *health.Verdict {
	if v != nil && slices.ContainsFunc(v.Active, func(a health.Active) bool { return !health.Known(a.ID) }) {
		return nil
	}
	return v
}

// ids returns the active reasons, sorted by name.
func ids(v *health.Verdict) []string {
	out := make([]string, 0, len(v.Active))
	for _, a := range v.Active {
		out = append(out, a.ID)
	}
	slices.Sort(out)
	return out
}
