package daemon

import (
	"testing"
	"testing/synctest"
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

// TestStarved: on a node that starves plegd each judgement comes late, and counts all the same:
// only one isolated gap holds the verdict.
func TestStarved(t *testing.T) {
	for _, gap := range []time.Duration{pausedAfter, 3100 * time.Millisecond, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.StateDir, cfg.ControlSocket, cfg.WebListenAddresses, cfg.KubeletHealthzURL = "", "", nil, ""
			cfg.ProcFS, cfg.SysFS = t.TempDir(), t.TempDir()
			d, err := New(cfg, exporter.Build{}, zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			held := 0
			for range 600 {
				d.published.Store(&facts.Snapshot{At: time.Now(), Verdict: facts.Verdict{State: "before"}})
				time.Sleep(gap)
				if d.judge(time.Now()).State == "before" {
					held++
				}
			}
			if held > 1 {
				t.Errorf("judgements %s apart: the verdict was held %d times of 600", gap, held)
			}
			time.Sleep(isolatedAfter)
			d.published.Store(&facts.Snapshot{At: time.Now(), Verdict: facts.Verdict{State: "before"}})
			time.Sleep(pausedAfter)
			if got := d.judge(time.Now()).State; got != "before" {
				t.Errorf("after an isolated pause the verdict is %s", got)
			}
		})
	}
}
