package health

import (
	"slices"

	"github.com/plegd/plegd/internal/facts"
)

// finding returns the oldest finding of the ledger that proves a reason, nil for none.
func (s *signals) finding(id string) *facts.Finding {
	if s.hop != nil {
		return nil
	}
	all := s.f.Evidence.Findings
	i := slices.IndexFunc(all, func(f facts.Finding) bool {
		return f.Reason == id && s.age(f.Chain.At) <= findingValid
	})
	if i < 0 {
		return nil
	}
	return &all[i]
}

// findingEvidence is the chain of the finding that proves a reason, from the culprit on, else nil.
func (s *signals) findingEvidence(id string) lines {
	f := s.finding(id)
	if f == nil {
		return nil
	}
	out := chainLines(&f.Chain)
	out.add("for %s", s.ago(f.Since))
	return out
}

func peerStuck(s *signals) lines { return s.findingEvidence(RuntimePeerStuck) }
