package health

import (
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// findingValid is how long a finding counts after its last look: the ledger's interval, and one pass.
const findingValid = 15 * time.Second

// finding returns the oldest finding of the ledger that proves a reason, nil for none.
func (w *view) finding(id string) *facts.Finding {
	all := w.f.Evidence.Findings
	i := slices.IndexFunc(all, func(f facts.Finding) bool {
		return f.Reason == id && w.age(f.Chain.At) <= findingValid && w.hop == nil
	})
	if i < 0 {
		return nil
	}
	return &all[i]
}

// findingEvidence is the chain of the finding that proves a reason, from the culprit on, else nil.
func (w *view) findingEvidence(id string) (out lines) {
	f := w.finding(id)
	if f == nil {
		return nil
	}
	for _, l := range slices.Backward(f.Chain.Links) {
		out.text(linkText(&l))
	}
	out.when(f.Chain.Unknown != "", "no further: %s", f.Chain.Unknown)
	out.add("for %s", w.ago(f.Since))
	return out
}

func peerStuck(w *view) lines { return w.findingEvidence(RuntimePeerStuck) }
