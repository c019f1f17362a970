package daemon

import (
	"context"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/relist"
)

const (
	// witnessAfter is how long a list is unanswered before another call is
	// made beside it, to tell "one list hangs" from "nothing answers".
	witnessAfter = 500 * time.Millisecond
	// witnessMax is the longest time between two such calls during one hang.
	witnessMax = 10 * time.Second
)

// witness asks for the Version on the held connection while a list hangs. It
// is quiet as long as lists are answered.
type witness struct {
	rt      *runtime
	loop    *relist.Loop
	timeout time.Duration
}

// String names the task.
func (w *witness) String() string { return "witness" }

// Run watches until ctx ends, and then returns nil.
func (w *witness) Run(ctx context.Context) error {
	tick := time.NewTicker(witnessAfter / 2)
	defer tick.Stop()
	var hang, next time.Time
	wait := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s := w.loop.Snapshot()
		if s.Phase != relist.ListingSandboxes && s.Phase != relist.ListingContainers {
			continue
		}
		now := time.Now()
		if now.Sub(s.PhaseStart) < witnessAfter {
			continue
		}
		if !s.PhaseStart.Equal(hang) {
			hang, next, wait = s.PhaseStart, now, w.timeout
		}
		if now.Before(next) {
			continue
		}
		if c, err := w.rt.client(cri.OpVersion); err == nil {
			limited, cancel := context.WithTimeout(ctx, w.timeout)
			_, _ = c.Version(limited) // what came of it is in the client's history
			cancel()
		}
		next = time.Now().Add(wait)
		wait = min(2*wait, witnessMax)
	}
}
