package daemon

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestProofStands: what the chain of a call has proved stands once the call is answered, until its culprit is in another state,
// or while it holds up nothing for long.
func TestProofStands(t *testing.T) {
	for _, tt := range []struct {
		name   string
		state  byte            // of the culprit now
		known  facts.LinkState // as it was proved
		proved time.Duration
		active string
		stands bool
	}{
		{"it is still stopped", 'T', facts.LinkStopped, time.Second, health.ShimStuck, true},
		{"it runs again", 'S', facts.LinkStopped, time.Second, health.ShimStuck, false},
		{"nothing was late for long", 'T', facts.LinkStopped, proofValid + time.Second, health.ShimStuck, false},
		{"its quota is not used up at the moment", 'S', facts.LinkThrottled, time.Second, health.ShimStuck, true},
		{"its quota has not been used up for long", 'S', facts.LinkThrottled, confirmedFor + time.Second, health.ShimStuck, false},
		{"lists are slow", 'T', facts.LinkStopped, proofValid + time.Second, health.RelistSlow, true},
	} {
		root := t.TempDir()
		stat := evidencetest.StatLine(7, "thing", tt.state, 1, 9)
		evidencetest.WriteTree(t, root, map[string]string{"7/stat": stat, "7/task/7/stat": stat, "7/cgroup": "0::/\n"})
		culprit := facts.Link{Kind: facts.KindProcess, Name: "thing", PID: 7, State: tt.known}
		cfg := DefaultConfig()
		cfg.StateDir, cfg.ControlSocket, cfg.WebListenAddresses = "", "", nil
		cfg.ProcFS, cfg.SysFS = root, t.TempDir()
		d, err := New(cfg, exporter.Build{}, zap.NewNop())
		must.Do(t, err)
		f := &chainFollower{Daemon: d}
		f.proof = proof{
			finding: facts.Finding{Reason: health.ShimStuck, Call: "list_containers", Chain: facts.Chain{Links: []facts.Link{culprit}}},
			proven:  time.Now().Add(-tt.proved),
		}
		s := &facts.Snapshot{Verdict: facts.Verdict{Active: []facts.Active{{ID: tt.active}}}}
		f.noteProof(&s.Verdict)
		f.confirmProof(t.Context(), s)
		check.Equal(t, d.proven.Load() != nil, tt.stands, "%s: it stands", tt.name)
	}
}
