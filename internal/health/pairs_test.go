package health

import (
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// besides are harmless warnings that can stand beside any other fault. Each makes
// its own true in the facts, and reports whether it could.
var besides = []struct {
	id  string
	add func(f *facts.Facts, now time.Time) bool
}{
	{TooManyContainers, func(f *facts.Facts, _ time.Time) bool {
		f.Pods = &facts.Pods{Containers: map[string]int{"exited": 2 * tooManyContainers}}
		return true
	}},
	{FDsRunningOut, func(f *facts.Facts, now time.Time) bool {
		p := f.Evidence.Process
		if p == nil {
			p = &facts.Process{At: now, PID: 1, Alive: true, Start: now.Add(-24 * time.Hour)}
		}
		if !p.Alive || p.FDsExhausted() || !p.ExhaustedAt.IsZero() {
			return false
		}
		few := *p
		few.OpenFDs, few.MaxFDs = 900, 1024
		f.Evidence.Process = &few
		return true
	}},
	{ShimStuck, func(f *facts.Facts, now time.Time) bool {
		c := facts.Children{At: now, Shims: 110}
		if f.Evidence.Children != nil {
			c = *f.Evidence.Children
		}
		c.Stuck = append(c.Stuck[:len(c.Stuck):len(c.Stuck)], facts.Child{PID: 99999, Comm: "containerd-shim", State: "T", Since: now.Add(-5 * time.Second)})
		f.Evidence.Children = &c
		return true
	}},
	{PodStartsFailing, func(f *facts.Facts, now time.Time) bool {
		k := facts.Kubelet{At: now}
		if f.Evidence.Kubelet != nil {
			k = *f.Evidence.Kubelet
		}
		k.Sandboxes = &facts.StartCalls{Errors: 5, Since: now.Add(-time.Minute), LastError: now.Add(-5 * time.Second), Longest: 2 * startSlow}
		f.Evidence.Kubelet = &k
		return true
	}},
}

// provenBy are the pairs in which the added warning may take a critical reason's
// place: a shim that is stuck is the likely cause of an inspection that hangs.
var provenBy = map[[2]string]bool{{ShimStuck, PodInspectionStall}: true}

// TestPairs: two things can be true at once. A critical reason stays critical and
// primary beside every harmless warning.
func TestPairs(t *testing.T) {
	for _, file := range scenarioFiles(t, "*") {
		alone := judgeFile(t, file, nil)
		if alone.Reason == "" || alone.Active[0].Severity != facts.SeverityCritical {
			continue
		}
		name := strings.TrimSuffix(strings.TrimPrefix(file, "testdata/scenarios/"), ".json")
		for _, b := range besides {
			both := judgeFile(t, file, b.add)
			if both == nil || alone.ActiveReason(b.id) != nil || both.ActiveReason(b.id) == nil {
				continue
			}
			was := both.ActiveReason(alone.Reason)
			switch {
			case provenBy[[2]string{b.id, alone.Reason}] && both.Reason == b.id && both.Active[0].Severity == facts.SeverityCritical:
			case was == nil || was.Severity != facts.SeverityCritical:
				t.Errorf("%s beside %s: no longer a critical reason; %s", name, b.id, listed(both))
			case both.Active[0].Severity != facts.SeverityCritical:
				t.Errorf("%s beside %s: hidden behind a milder one; %s", name, b.id, listed(both))
			case both.Reason != alone.Reason:
				t.Errorf("%s beside %s: no longer primary; %s", name, b.id, listed(both))
			}
			if both.State.Rank() < alone.State.Rank() {
				t.Errorf("%s beside %s: %s, was %s alone", name, b.id, both.State, alone.State)
			}
		}
	}
}

func listed(v *facts.Verdict) string {
	var out []string
	for _, a := range v.Active {
		out = append(out, a.ID+" "+string(a.Severity))
	}
	return string(v.State) + ": " + strings.Join(out, ", ")
}

// judgeFile judges a scenario, changed by add; nil where that cannot be.
func judgeFile(t *testing.T, file string, add func(*facts.Facts, time.Time) bool) *facts.Verdict {
	t.Helper()
	s := readScenario(t, file)
	if add != nil && !add(&s.Facts, scenarioNow) {
		return nil
	}
	return Judge(&s.Facts, scenarioNow, nil)
}
