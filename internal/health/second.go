package health

import (
	"slices"

	"github.com/plegd/plegd/internal/facts"
)

// addCauses adds to each reason beside the primary one what is known of its own cause.
func addCauses(v *facts.Verdict, sets []*signals) {
	for i := range v.Active {
		a := &v.Active[i]
		if a.ID != v.Reason && a.Severity != facts.SeverityInfo && !isSymptomOf(a.ID, v.Reason) {
			a.Cause = secondCause(v, a, sets)
		}
	}
}

// isSymptomOf reports whether a reason says what is seen of a fault, the primary reason: its cause is that one's.
func isSymptomOf(id, primary string) bool {
	return slices.Contains(symptoms, id) || slices.Contains(reasonOf(id).CausedBy, primary)
}

// secondCause returns what is known of the cause of a reason beside the primary one, and its next step; nil where both
// have the same culprit.
func secondCause(v *facts.Verdict, a *facts.Active, sets []*signals) *facts.ActiveCause {
	out := facts.ActiveCause{}
	c := sets[0].secondChain(a, signalsAt(sets, a.Hop))
	culprit := c.Culprit()
	if culprit != nil && v.Culprit != nil && culprit.IsSame(v.Culprit) {
		return nil
	}
	if culprit != nil {
		out.WaitChain = facts.WaitChain{Chain: c.Links, ChainEnd: c.Unknown, Culprit: culprit}
	}
	out.Next = ownStep(a.ID, a.Hop, sets, c)
	if out.Next == "" {
		out.Next = pageNext(signalsAt(sets, a.Hop).f, reasonOf(a.ID), out.Chain)
	}
	return &out
}

// secondChain returns the chain that is about a reason beside the primary one, nil for none. ofHop are the signals of its hop.
func (s *signals) secondChain(a *facts.Active, ofHop *signals) *facts.Chain {
	if found := ofHop.finding(a.ID); found != nil {
		return &found.Chain
	}
	second := s.f.Evidence.Second
	isItsOwn := second != nil && second.Reason == a.ID && second.Chain.First().PID == Subject(ofHop.f, a.ID)
	if isItsOwn && s.age(second.Chain.At) <= chainValid {
		return &second.Chain
	}
	if s.chainCause == a.ID {
		return s.chain
	}
	return nil
}
