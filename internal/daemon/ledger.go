package daemon

import (
	"cmp"
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/ledger"
)

// keepLedger looks for what the runtime is owed, until ctx ends, and then returns nil. A pass that
// hangs in a read of /proc keeps nothing from ending.
func (d *Daemon) keepLedger(ctx context.Context) error {
	var pass bounded.Slot[ledger.Result]
	var due time.Time
	failure := ""
	return d.pace.each(ctx, func() {
		if pass.Busy() || time.Now().Before(due) {
			return
		}
		result, err := pass.Do(ctx, roundTimeout, func(ctx context.Context) (ledger.Result, error) {
			return d.ledger.Pass(ctx), nil
		})
		if err != nil && ctx.Err() == nil && err.Error() != failure {
			failure = err.Error()
			d.log.Error("what the runtime is owed cannot be followed", zap.Error(err))
		}
		d.publishFindings(result.Findings)
		due = time.Now().Add(cmp.Or(result.Next, ledger.Interval)) // a pass that failed has no result
	})
}

// publishFindings keeps what was found for the next judgement, which is made at once where it is new.
func (d *Daemon) publishFindings(found []facts.Finding) {
	previous := d.findings.Swap(&found)
	if len(found) > 0 && (previous == nil || len(*previous) != len(found)) {
		d.news.Send()
	}
}
