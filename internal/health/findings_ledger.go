package health

import (
	"slices"

	"github.com/plegd/plegd/internal/facts"
)

// finding returns the oldest finding of the ledger that proves a reason, nil for none.
func (s *signals) finding(id string) *facts.Finding {
	all := s.f.Evidence.Findings
	i := slices.IndexFunc(all, func(f facts.Finding) bool {
		return f.Reason == id && s.age(f.Chain.At) <= findingValid && s.hop == nil
	})
	if i < 0 {
		return nil
	}
	return &all[i]
}

// findingEvidence is the chain of the finding that proves a reason, from the culprit on, else nil.
func (s *signals) findingEvidence(id string) (out lines) {
	f := s.finding(id)
	if f == nil {
		return nil
	}
	for _, l := range slices.Backward(f.Chain.Links) {
		out.text(linkText(&l))
	}
	out.addIf(f.Chain.Unknown != "", "no further: %s", f.Chain.Unknown)
	out.add("for %s", s.ago(f.Since))
	return out
}

func peerStuck(s *signals) lines { return s.findingEvidence(RuntimePeerStuck) }
