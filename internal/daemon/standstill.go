package daemon

import (
	"time"

	"github.com/plegd/plegd/internal/health"
)

const (
	// stoodStill is a pause between two judgements, 0.25 s apart, that means that
	// plegd itself was stopped, frozen or starved.
	stoodStill = 2 * time.Second
	// wakesWithin is how long it may take after that until the runtime has been
	// asked again.
	wakesWithin = 3 * time.Second
)

// standstill holds a verdict back while it would be about plegd: when plegd goes
// on after it was stopped for a minute, the last good Status is a minute old, and
// not because of the runtime.
type standstill struct {
	looked time.Time // the last judgement
	woke   time.Time // zero when the runtime has been asked since
}

// judged returns the verdict that counts: v, or the one before it as long as
// nothing has been learnt since plegd goes on.
func (s *standstill) judged(now time.Time, f *health.Facts, v, previous *health.Verdict) *health.Verdict {
	if !s.looked.IsZero() && now.Sub(s.looked) >= stoodStill {
		s.woke = now
	}
	s.looked = now
	if s.woke.IsZero() || previous == nil {
		return v
	}
	relist := f.Relist.Last != nil && f.Relist.Last.End.After(s.woke)
	status := f.Status.LastGood.After(s.woke) || f.Status.LastErr != nil
	if relist && status || now.Sub(s.woke) >= wakesWithin {
		s.woke = time.Time{}
		return v
	}
	return previous
}
