package kubelet

import (
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// Observations is what internal/health derives from the facts of one moment, as far as the model depends on it.
type Observations struct {
	// AttemptMade is true once the socket was searched for and the first relist has ended, or hangs.
	AttemptMade bool
	// LastAnswer is when the runtime last answered any call on the held connection, an error included; zero for never.
	LastAnswer time.Time
	// HungSince is the start of the list that hangs, or of the last relist where that ran into its deadline; zero for neither.
	HungSince time.Time
	// Unanswered is the relist whose list is unanswered for ListHangAfter and longer than usual, nil for none.
	Unanswered *facts.InFlight
	// StatusFails is true while Status fails or hangs, StatusAlone while it does so beside calls that are answered.
	StatusFails, StatusAlone bool
	// StatusWillFail is true where the next Status is known to fail.
	StatusWillFail bool
	// Unreachable is true while no call gets through: no connection, or one on which nothing is answered.
	Unreachable bool
	// APILost is since when the kubelet cannot reach its API server, APIUnproven true while it is open whether it can.
	APILost     APILoss
	APIUnproven bool
	// Blind is true where only plegd cannot reach the runtime: a permission, or a path that its mounts lack.
	Blind bool
}

// moment is what the model knows at time t.
type moment struct {
	Observations

	f     *facts.Facts
	t     time.Time
	rules Rules
}

func newMoment(f *facts.Facts, t time.Time, seen Observations) *moment {
	return &moment{Observations: seen, f: f, t: t, rules: Apply(f, t)}
}

// age returns how long ago a time was.
func (m *moment) age(t time.Time) time.Duration { return m.t.Sub(t) }

// unanswered reports whether a call that began at start has had no answer for limit.
func (m *moment) unanswered(start time.Time, limit time.Duration) bool {
	return facts.Unanswered(start, m.t, limit)
}
