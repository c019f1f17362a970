package daemon

import (
	"context"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/chain"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
)

// followSecond follows the chain of a reason beside the primary one, until ctx ends, and then returns nil. Without
// such a reason it looks at the last verdict and at nothing else.
func (d *Daemon) followSecond(ctx context.Context) error {
	f := &secondFollower{Daemon: d}
	return d.pace.each(ctx, func() { f.tick(ctx) })
}

// secondFollower follows the chain of one process after the other.
type secondFollower struct {
	*Daemon

	explorer *chain.Explorer // nil while there is no such reason
	round    bounded.Slot[facts.Chain]
	process  int       // that it follows
	due      time.Time // the next round
}

// tick looks for such a reason, and follows its chain once when that is due.
func (f *secondFollower) tick(ctx context.Context) {
	if f.round.Busy() {
		return
	}
	published := f.Published()
	symptom, reason, ok := health.FindSecond(&published.Facts, &published.Verdict)
	if !ok {
		f.explorer = nil
		f.second.Store(nil)
		return
	}
	if f.explorer == nil || f.process != symptom.Process {
		f.explorer = chain.New(f.sources.Table, f.cfg.SysFS, nil)
		f.process = symptom.Process
	} else if time.Now().Before(f.due) {
		return
	}
	f.due = time.Now().Add(exploreEvery)
	start := f.chainSymptom(&published.Facts, &published.Verdict, symptom)
	c, err := f.round.Do(ctx, roundTimeout, func(context.Context) (facts.Chain, error) {
		return f.explorer.Explore(ctx, start), nil
	})
	if err != nil {
		f.second.Store(nil)
		return
	}
	f.second.Store(&facts.Finding{Reason: reason, Since: symptom.Since, Chain: c})
}
