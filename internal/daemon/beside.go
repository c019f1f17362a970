package daemon

import (
	"context"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/chain"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
)

// followBeside follows the chain of a reason beside the primary one, until ctx ends, and then returns nil. Without
// such a reason it looks at the last verdict and at nothing else.
func (d *Daemon) followBeside(ctx context.Context) error {
	f := &besideFollower{Daemon: d}
	return d.pace.each(ctx, func() { f.tick(ctx) })
}

// besideFollower follows the chain of one process after the other.
type besideFollower struct {
	*Daemon

	explorer *chain.Explorer // nil while there is no such reason
	round    bounded.Slot[facts.Chain]
	process  int       // that it follows
	due      time.Time // the next round
}

// tick looks for such a reason, and follows its chain once when that is due.
func (f *besideFollower) tick(ctx context.Context) {
	if f.round.Busy() {
		return
	}
	published := f.Published()
	symptom, reason, ok := health.FindBeside(&published.Facts, &published.Verdict)
	if !ok {
		f.explorer = nil
		f.beside.Store(nil)
		return
	}
	if f.explorer == nil || f.process != symptom.Process {
		f.explorer = chain.New(f.sources.Table, f.cfg.SysFS, nil)
		f.process = symptom.Process
	} else if time.Now().Before(f.due) {
		return
	}
	f.due = time.Now().Add(exploreEvery)
	from := f.chainSymptom(&published.Facts, &published.Verdict, symptom)
	c, err := f.round.Do(ctx, roundTimeout, func(context.Context) (facts.Chain, error) {
		return f.explorer.Explore(ctx, from), nil
	})
	if err != nil {
		f.beside.Store(nil)
		return
	}
	f.beside.Store(&facts.Finding{Reason: reason, Since: symptom.Since, Chain: c})
}
