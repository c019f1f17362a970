package evidence

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchPace: a source that has found something is asked again sooner.
func TestWatchPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Duration
		c := &connectionsSource{}
		start := time.Now()
		w := newTestWatch(func(context.Context) (*int, error) {
			asked = append(asked, time.Since(start))
			c.waits = map[uint32]unreadWait{1: {}}
			if len(asked) == 3 {
				c.waits = nil
			}
			return new(int), nil
		})
		w.spec.Period, w.spec.Fast, w.spec.Urgent = connectionsPeriod, connectionsSoon, func(*int) bool { return len(c.waits) > 0 }
		w.spread, w.calm = exactly, exactly
		stop := runWatch(t, w)
		later(7 * time.Second)
		stop()
		want := []time.Duration{0, time.Second, 2 * time.Second, 7 * time.Second}
		if len(asked) != len(want) {
			t.Fatalf("asked at %v, want %v", asked, want)
		}
		for i := range want {
			if asked[i] != want[i] {
				t.Errorf("asked at %v, want %v", asked, want)
			}
		}
	})
}
