package daemon

import (
	"context"
	"time"

	"github.com/plegd/plegd/internal/chain"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
)

// proof is what the last chain of a call has proved; zero for nothing.
type proof struct {
	finding  facts.Finding
	proven   time.Time       // when it was last proved, or held up something
	explorer *chain.Explorer // nil while the call hangs
}

// noteProof keeps what the chain of a call proves, and drops what is over.
func (f *chainFollower) noteProof(v *facts.Verdict) {
	finding, ok := health.Proof(v)
	if ok {
		f.proof = proof{finding: finding, proven: time.Now()}
	} else if health.HoldsUp(v, f.proof.finding.Reason) {
		f.proof.proven = time.Now()
	}
	confirmed := f.proven.Load()
	if confirmed != nil && time.Since(confirmed.Chain.At) > confirmedFor {
		f.proven.Store(nil)
	}
	if time.Since(f.proof.proven) > proofValid {
		f.dropProof()
	}
}

// confirmProof finds out whether what the chain of a call has proved still stands once the call is answered: the next call
// meets it again. It follows the chain from its first process, which must lead to the same culprit in the same state.
func (f *chainFollower) confirmProof(ctx context.Context, s *facts.Snapshot) {
	known := f.proof.finding.Chain.Culprit()
	if known == nil || time.Now().Before(f.due) {
		return
	}
	f.due = time.Now().Add(exploreEvery)
	if f.proof.explorer == nil {
		f.proof.explorer = chain.New(f.sources.Table, f.cfg.SysFS, nil)
	}
	finding := f.proof.finding
	first := facts.Symptom{Process: finding.Chain.First().PID, Since: finding.Since}
	symptom := f.chainSymptom(&s.Facts, &s.Verdict, first)
	c, err := f.round.Do(ctx, roundTimeout, func(context.Context) (facts.Chain, error) {
		return f.proof.explorer.Explore(ctx, symptom), nil
	})
	culprit := c.Culprit()
	isAsKnown := err == nil && culprit != nil && culprit.IsSame(known) && culprit.State == known.State
	isRecent := f.proven.Load() == nil && time.Since(f.proof.proven) < confirmedFor
	switch {
	case isAsKnown && c.Unknown == "":
		finding.Chain = c
		f.proven.Store(&finding)
	case known.State == facts.LinkThrottled && isRecent:
		// A quota shows only while it is used up: one look does not disprove it.
		finding.Chain.At = f.proof.proven
		f.proven.Store(&finding)
	case known.State == facts.LinkThrottled, err == nil && c.Unknown != "": // neither confirmed nor disproved
	default:
		f.dropProof()
	}
}

// dropProof forgets what the chain of a call has proved.
func (f *chainFollower) dropProof() {
	f.proof = proof{}
	f.proven.Store(nil)
}
