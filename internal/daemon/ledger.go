package daemon

import (
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
	l := ledger.New(ledger.Options{
		Table: d.sources.Table, SysFS: d.cfg.SysFS, PIDs: d.sources.PIDs, Socket: d.path, Pod: d.pod,
	})
	var pass bounded.Slot[[]facts.Finding]
	failed := ""
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		found, err := pass.Do(ctx, roundTimeout, func(ctx context.Context) ([]facts.Finding, error) {
			return l.Pass(ctx), nil
		})
		if err != nil && ctx.Err() == nil && err.Error() != failed {
			failed = err.Error()
			d.log.Error("what the runtime is owed cannot be followed", zap.Error(err))
		}
		d.publishFindings(found)
		timer.Reset(l.Next())
	}
}

// publishFindings keeps what was found for the next judgement, which is made at once where it is new.
func (d *Daemon) publishFindings(found []facts.Finding) {
	previous := d.findings.Swap(&found)
	if len(found) > 0 && (previous == nil || len(*previous) != len(found)) {
		d.news.Send()
	}
}
