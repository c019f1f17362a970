package daemon

import (
	"testing"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestSecondChain: the chain of a reason beside the primary one is followed while that is active.
func TestSecondChain(t *testing.T) {
	root := t.TempDir()
	stat := evidencetest.StatLine(7, "plugin", 'T', 1, 9)
	evidencetest.WriteTree(t, root, map[string]string{"7/stat": stat, "7/task/7/stat": stat, "7/cgroup": "0::/\n"})
	cfg := DefaultConfig()
	cfg.StateDir, cfg.ControlSocket, cfg.WebListenAddresses = "", "", nil
	cfg.ProcFS, cfg.SysFS = root, t.TempDir()
	d, err := New(cfg, exporter.Build{}, zap.NewNop())
	must.Do(t, err)
	full := facts.Active{ID: health.RuntimeStorageFull, Severity: facts.SeverityWarning}
	helper := facts.Active{ID: health.RuntimeHelperStuck, Severity: facts.SeverityWarning}
	both := &facts.Snapshot{Verdict: facts.Verdict{Reason: full.ID, Active: []facts.Active{full, helper}}}
	both.Facts.Evidence.Children = &facts.Children{Old: []facts.Child{{PID: 7, Comm: "plugin", State: "T"}}}
	d.published.Store(both)
	f := &secondFollower{Daemon: d}
	f.tick(t.Context())
	found := d.second.Load()
	if found == nil || found.Reason != helper.ID || found.Chain.Culprit() == nil || found.Chain.Culprit().PID != 7 {
		t.Fatalf("%+v", found)
	}
	alone := *both
	alone.Verdict.Active = []facts.Active{full}
	d.published.Store(&alone)
	f.tick(t.Context())
	check.Equal(t, d.second.Load() == nil, true, "it is over")
}
