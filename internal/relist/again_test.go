package relist

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

// TestAnsweredLate: pods that were answered late are asked once more, at most as
// many as are inspected at once, without an event and without a new status.
func TestAnsweredLate(t *testing.T) {
	for name, tt := range map[string]struct {
		took, after time.Duration // what a status takes, in the first relist and after it
		asked       int           // again
		answered    int           // of these
		holds       time.Duration // what the second relist takes
	}{
		"in time":                 {time.Second, 0, 0, 0, 0},
		"late, and at once again": {2 * time.Second, 10 * time.Millisecond, 4, 4, 40 * time.Millisecond},
		"late, and still late":    {2 * time.Second, 2 * time.Second, 4, 0, againTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := pods(t, 6)
				rt.sandboxes = nil
				rt.delay[cri.OpContainerStatus] = tt.took
				l := New(rt, Config{InspectConcurrency: 4, InspectTimeout: 10 * time.Second}, nil)
				l.relist(t.Context())
				drain(l)
				first := l.Cache().Get("u0000")
				rt.set(func(s *script) { s.delay[cri.OpContainerStatus], s.started[cri.OpContainerStatus] = tt.after, 0 })

				l.relist(t.Context())
				last := l.Snapshot().Last
				if n := rt.started[cri.OpContainerStatus]; n != tt.asked || len(last.Again) != tt.answered || len(last.Inspections) != 0 {
					t.Errorf("%d asked again, %d answered, %d other inspections, want %d, %d, 0", n, len(last.Again), len(last.Inspections), tt.asked, tt.answered)
				}
				if d := last.End.Sub(last.Start); d > tt.holds+400*time.Millisecond {
					t.Errorf("the second relist took %s, want about %s", d, tt.holds)
				}
				if e := drain(l); len(e) != 0 {
					t.Errorf("events %v, want none", e)
				}
				if now := l.Cache().Get("u0000"); now != first {
					t.Error("the cache holds another status")
				}

				rt.set(func(s *script) { s.started[cri.OpContainerStatus] = 0 })
				l.relist(t.Context())
				if n := rt.started[cri.OpContainerStatus]; n != 0 {
					t.Errorf("%d asked a third time", n)
				}
			})
		})
	}
}
