package kubelet

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/factstest"
)

// TestRulesBeforePlegd bounds when the rules fail of a kubelet that has run for longer than plegd, which began 20 s ago.
func TestRulesBeforePlegd(t *testing.T) {
	const s = time.Second
	late := &facts.CallError{Operation: "status", Code: "Unavailable"}
	for name, tt := range map[string]struct {
		change   func(*facts.Facts)
		from, by time.Duration // 0: nothing is unknown
	}{
		"all is answered":     {func(*facts.Facts) {}, 0, 0},
		"lists fail":          {func(f *facts.Facts) { f.Relist.Failures = 1 }, 120 * s, 160 * s},
		"lists always failed": {func(f *facts.Facts) { f.Relist.Failures, f.Relist.LastSeen = 1, time.Time{} }, -20 * s, 160 * s},
		"lists fail now":      {func(f *facts.Facts) { f.Relist.Failures, f.Relist.LastSeen = 1, ago(10*s) }, 0, 0},
		"a list hangs": {func(f *facts.Facts) {
			f.Relist.InFlight = &facts.InFlight{Phase: facts.PhaseListContainers, PhaseStart: ago(3 * s)}
		}, 120 * s, 160 * s},
		"Status fails":                 {func(f *facts.Facts) { f.Status.LastErr = late }, 4 * s, 10 * s},
		"Status fails now":             {func(f *facts.Facts) { f.Status.LastErr, f.Status.LastGood = late, ago(10*s) }, 0, 0},
		"lists fail, and then Status":  {func(f *facts.Facts) { f.Relist.Failures, f.Relist.LastSeen, f.Status.LastErr = 1, ago(178*s), late }, 2 * s, 10 * s},
		"Status fails, and then lists": {func(f *facts.Facts) { f.Relist.Failures, f.Status.LastErr = 1, late }, 4 * s, 10 * s},
		"the kubelet has restarted":    {func(f *facts.Facts) { f.Relist.Failures, f.KubeletStarted = 1, ago(5*s) }, 0, 0},
	} {
		f := factstest.Healthy(t0)
		f.Started, f.Relist.LastSeen, f.Status.LastGood = ago(20*s), ago(60*s), ago(21*s)
		tt.change(&f)
		want := window{at(tt.from), at(tt.by)}
		seen := Observations{StatusFails: f.Status.LastErr != nil}
		if list := f.Relist.InFlight; list != nil {
			seen.HungSince = list.PhaseStart
		}
		got := newMoment(&f, t0, seen).failedBeforePlegd()
		if ok := !got.never(); ok != (tt.by > 0) || ok && got != want {
			t.Errorf("%s: %t, %s to %s; want %s to %s", name, ok, got.earliest, got.latest, want.earliest, want.latest)
		}
	}
}
