package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
)

// settleAfter is how long one reason must have stood for a diagnosis to end
// before its time: a fault's first second can look like another one.
const settleAfter = time.Second

// Diagnose watches the runtime for a short while and returns what there is to
// say. It ends as soon as that is clear, and at the latest when ctx does. It
// serves nothing and writes nothing.
func Diagnose(ctx context.Context, cfg Config, build exporter.Build) (facts.Snapshot, error) {
	cfg.StateDir = ""
	cfg.ControlSocket = ""
	cfg.WebListenAddresses = nil
	cfg.WebListeners = nil
	d, err := New(cfg, build, zap.NewNop())
	if err != nil {
		return facts.Snapshot{}, err
	}
	watch, stop := context.WithCancel(ctx)
	defer stop()
	returned := make(chan error, 1)
	go func() { returned <- d.Run(watch) }()

	ticker := time.NewTicker(tick / 2)
	defer ticker.Stop()
	s := d.Snapshot(time.Now())
	for ctx.Err() == nil && !settled(&s) {
		select {
		case <-ctx.Done():
		case err := <-returned:
			return facts.Snapshot{}, err
		case <-ticker.C:
		}
		s = d.Snapshot(time.Now())
	}
	s.Previous = nil
	if s.Verdict.State == facts.StateStarting {
		// One moment does not show since when this has been so, and so no time is predicted.
		s.Verdict.NotReadyIn = nil
		s.Verdict.NotReadyInLatest = nil
		s.Verdict.RulesFailIn = nil
	}
	return s, nil
}

// settled reports whether waiting on would say nothing new.
func settled(s *facts.Snapshot) bool {
	v := &s.Verdict
	if v.State == facts.StateHealthy {
		return true
	}
	return v.Reason != "" && v.Reason != health.Starting && s.Age(v.Active[0].Since) >= settleAfter
}
