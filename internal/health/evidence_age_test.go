package health

import (
	"strings"
	"testing"
	"time"
)

// TestYoungWitness: a Version call that has only just been made is no failure,
// and one that failed never, or long ago, has no age to tell.
func TestYoungWitness(t *testing.T) {
	f := healthyFacts(t0)
	f.Relist.InFlight = &InFlight{Start: t0.Add(-5 * time.Second), Phase: PhaseListContainers, PhaseStart: t0.Add(-5 * time.Second)}
	f.Calls = map[string]Call{
		opVersion: {LastOK: t0.Add(-time.Second), InFlightSince: t0.Add(-time.Millisecond)},
	}
	v := Judge(&f, t0, nil)
	if v.Reason != RuntimeListStall {
		t.Fatalf("the reason is %q", v.Reason)
	}
	if all := strings.Join(v.Active[0].Evidence, "; "); strings.Contains(all, "version") {
		t.Errorf("the evidence has a version call: %s", all)
	}
}
