package daemon

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestPause: after a gap in the ticks the verdict is held for 3 s.
func TestPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.StateDir, cfg.ControlSocket, cfg.WebListenAddresses, cfg.KubeletHealthzURL = "", "", nil, ""
		cfg.ProcFS, cfg.SysFS = t.TempDir(), t.TempDir()
		d, err := New(cfg, exporter.Build{}, zap.NewNop())
		must.Do(t, err)
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
			must.Do(t, err)
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
			check.Equal(t, d.judge(time.Now()).State, "before", "after an isolated pause the verdict")
		})
	}
}

// TestSuspended: the clock of the ages does not count a suspend, and the node controller may have written Unknown in it.
// For one period of the kubelet's updates after a long one the API may show that.
func TestSuspended(t *testing.T) {
	for _, tt := range []struct {
		suspended time.Duration
		open      bool
	}{{time.Minute, true}, {20 * time.Second, false}} {
		synctest.Test(t, func(t *testing.T) {
			var suspended atomic.Int64
			w := watch(t, fakeRuntime(1, 1), func(cfg *Config) {
				cfg.suspended = func() time.Duration { return time.Duration(suspended.Load()) }
			})
			w.at(30 * time.Second)
			suspended.Store(int64(tt.suspended))
			s := w.at(35 * time.Second)
			if s.Facts.Paused < tt.suspended || s.Facts.Woke.IsZero() {
				t.Errorf("the pause was %s at %s", s.Facts.Paused, s.Facts.Woke)
			}
			if v := s.Verdict; !v.NodeReady || (v.ReadyInLatest != nil) != tt.open || (v.Reason == health.NodePaused) != tt.open {
				t.Errorf("after %s: node Ready %t, certainly in %v", tt.suspended, v.NodeReady, v.ReadyInLatest)
			}
			if v := w.at(45 * time.Second).Verdict; v.ReadyInLatest != nil {
				t.Errorf("15 s after a pause of %s the node may still not be Ready: %s", tt.suspended, *v.ReadyInLatest)
			}
		})
	}
}
