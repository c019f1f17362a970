package daemon

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/facts"
)

// TestPause: after a gap in the ticks the verdict is held for 3 s.
func TestPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.StateDir, cfg.ControlSocket, cfg.WebListenAddresses, cfg.KubeletHealthzURL = "", "", nil, ""
		cfg.ProcFS, cfg.SysFS = t.TempDir(), t.TempDir()
		d, err := New(cfg, exporter.Build{}, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		d.published.Store(&facts.Snapshot{Verdict: facts.Verdict{State: "before"}})
		for _, tt := range []struct {
			after time.Duration
			held  bool
		}{{time.Minute, true}, {2500 * time.Millisecond, true}, {500 * time.Millisecond, false}, {time.Second, false}} {
			time.Sleep(tt.after)
			if got := d.judge(time.Now()).State; (got == "before") != tt.held {
				t.Errorf("%s after %s, held is %t", got, tt.after, tt.held)
			}
		}
	})
}
