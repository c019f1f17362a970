package daemon

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// TestPause: after a gap in the ticks the verdict is held until the runtime has been
// called again, for 3 s at most.
func TestPause(t *testing.T) {
	t0 := time.Now()
	before, after := &health.Verdict{State: "before"}, &health.Verdict{State: "after"}
	called := health.Facts{
		Relist: health.Relist{Last: &health.RelistResult{Start: t0.Add(61 * time.Second)}},
		Status: health.Status{LastGood: t0.Add(61 * time.Second)},
	}
	for name, tt := range map[string]struct {
		gap   time.Duration
		then  time.Duration
		facts health.Facts
		want  *health.Verdict
	}{
		"no pause":     {time.Second, 0, health.Facts{}, after},
		"at once":      {time.Minute, 0, health.Facts{}, before},
		"not called":   {time.Minute, 2 * time.Second, health.Facts{}, before},
		"called":       {time.Minute, 2 * time.Second, called, after},
		"too long":     {time.Minute, 3 * time.Second, health.Facts{}, after},
		"called in it": {2 * time.Minute, time.Second, called, before},
	} {
		t.Run(name, func(t *testing.T) {
			var p pauses
			p.note(t0)
			p.note(t0.Add(tt.gap))
			now := t0.Add(tt.gap)
			for ; now.Before(t0.Add(tt.gap + tt.then)); now = now.Add(judgeEvery) {
				p.note(now)
			}
			p.note(now)
			if p.judged(now, &tt.facts, after, before) != tt.want {
				t.Errorf("the wrong verdict, held %t", p.held)
			}
		})
	}
}
