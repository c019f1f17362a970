package incident

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// TestJudgedCosts: a verdict that changes nothing allocates nothing, with and
// without an open incident; nor does a relist.
func TestJudgedCosts(t *testing.T) {
	r := New(Options{Monotonic: func() time.Duration { return 0 }})
	f := &health.Facts{}
	well := &health.Verdict{State: health.StateHealthy}
	bad := &health.Verdict{State: health.StateDegraded, Reason: "A", Active: []health.Active{{ID: "A", Severity: health.SeverityCritical}, {ID: "B", Severity: health.SeverityWarning}}}
	for range relistsKept {
		r.Relisted(health.RelistResult{})
	}
	check := func(what string, do func()) {
		t.Helper()
		if n := testing.AllocsPerRun(100, do); n > 0 {
			t.Errorf("%s: %g allocations", what, n)
		}
	}
	check("a relist", func() { r.Relisted(health.RelistResult{}) })
	judged := snapshot(f, well, well)
	check("healthy", func() { r.Judged(judged) })
	r.Judged(snapshot(f, well, bad))
	judged = snapshot(f, bad, bad)
	check("degraded as before", func() { r.Judged(judged) })
}

func BenchmarkJudged(b *testing.B) {
	r := New(Options{Monotonic: func() time.Duration { return 0 }})
	f := &health.Facts{}
	bad := &health.Verdict{State: health.StateDegraded, Reason: "A", Active: []health.Active{{ID: "A", Severity: health.SeverityCritical}}}
	b.ReportAllocs()
	for b.Loop() {
		r.Judged(snapshot(f, bad, bad))
	}
}
