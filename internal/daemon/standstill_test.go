package daemon

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// TestStandstill: a plegd that was stopped for a minute does not blame the
// runtime for it, and one whose runtime is gone as well says so soon.
func TestStandstill(t *testing.T) {
	t0 := time.Now()
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	good := &health.Verdict{State: health.StateHealthy}
	bad := &health.Verdict{State: health.StateUnhealthy}
	facts := func(relist, status time.Duration) *health.Facts {
		return &health.Facts{Relist: health.Relist{Last: &health.RelistResult{End: at(relist)}}, Status: health.Status{LastGood: at(status)}}
	}
	failed := facts(61*time.Second, 0)
	failed.Status.LastErr = &health.CallError{}
	type look struct {
		at   time.Duration
		f    *health.Facts
		want *health.Verdict
	}
	old := facts(0, 0)
	for name, looks := range map[string][]look{
		"no pause":          {{0, old, bad}, {time.Second, old, bad}},
		"both have been":    {{0, old, bad}, {time.Minute, old, good}, {60250 * time.Millisecond, facts(60100*time.Millisecond, 0), good}, {60500 * time.Millisecond, facts(60100*time.Millisecond, 60300*time.Millisecond), bad}},
		"Status fails":      {{0, old, bad}, {time.Minute, old, good}, {61500 * time.Millisecond, failed, bad}},
		"neither comes":     {{0, old, bad}, {time.Minute, old, good}, {61900 * time.Millisecond, old, good}, {63 * time.Second, old, bad}, {63250 * time.Millisecond, old, bad}},
		"and another pause": {{0, old, bad}, {time.Minute, old, good}, {2 * time.Minute, old, good}},
	} {
		t.Run(name, func(t *testing.T) {
			var s standstill
			for _, l := range looks {
				if v := s.judged(at(l.at), l.f, bad, good); v != l.want {
					t.Errorf("at %s: %s, want %s", l.at, v.State, l.want.State)
				}
			}
			if v := (&standstill{}).judged(t0, old, bad, nil); v != bad {
				t.Errorf("the first judgement: %+v", v)
			}
		})
	}
}
