package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/facts"
)

// keepLedger looks for what the runtime is owed, until ctx ends, and then returns nil. A pass that
// hangs in a read of /proc keeps nothing from ending.
func (d *Daemon) keepLedger(ctx context.Context) error {
	var pass bounded.Slot[[]facts.Finding]
	var due time.Time
	failure := ""
	return d.pace.each(ctx, func() {
		if pass.Busy() || time.Now().Before(due) {
			return
		}
		found, err := pass.Do(ctx, roundTimeout, func(ctx context.Context) ([]facts.Finding, error) {
			return d.ledger.Pass(ctx), nil
		})
		if err != nil && ctx.Err() == nil && err.Error() != failure {
			failure = err.Error()
			d.log.Error("what the runtime is owed cannot be followed", zap.Error(err))
		}
		d.publishFindings(found)
		due = time.Now().Add(d.ledger.Next())
	})
}

// publishFindings keeps what was found for the next judgement, which is made at once where it is new.
func (d *Daemon) publishFindings(found []facts.Finding) {
	previous := d.findings.Swap(&found)
	if len(found) > 0 && (previous == nil || len(*previous) != len(found)) {
		d.news.Send()
	}
}
