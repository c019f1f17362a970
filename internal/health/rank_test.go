package health

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
)

// judged returns a verdict with the reasons active, each since some time.
func judged(previous *facts.Verdict, since map[string]time.Duration) *facts.Verdict {
	w := newSignals(&facts.Facts{}, t0, previous)
	v := &facts.Verdict{}
	for i := range table {
		if age, ok := since[table[i].ID]; ok {
			v.Active = append(v.Active, facts.Active{ID: table[i].ID, Severity: table[i].Severity, Since: t0.Add(-age), Seen: t0})
		}
	}
	v.Active = holdPrevious(v.Active, w)
	rankReasons(v, w)
	return v
}

// TestRank: severity, then layer, then the table's order; the primary reason gives
// way after two seconds, or at once to a cause.
func TestRank(t *testing.T) {
	was := func(id string, seen time.Duration) *facts.Verdict {
		return &facts.Verdict{Reason: id, Active: []facts.Active{{ID: id, Severity: reasonOf(id).Severity, Seen: t0.Add(-seen)}}}
	}
	const ms = time.Millisecond
	type since = map[string]time.Duration
	for _, tt := range []struct {
		name   string
		before *facts.Verdict
		active since
		want   string
	}{
		{"a warning of a lower layer hides nothing", nil, since{ShimStuck: time.Hour, KubeletDown: 0}, KubeletDown},
		{"the lower layer", nil, since{RuntimeUnresponsive: time.Minute, AcceptFDExhausted: 0, NetworkNotReady: 0}, AcceptFDExhausted},
		{"the table's order", nil, since{RuntimeListStall: 0, NetworkNotReady: time.Minute}, RuntimeListStall},
		{"not known, and a warning", nil, since{Unknown: 0, TooManyContainers: time.Hour}, Unknown},

		{"kept", was(RuntimeThrottled, 2900*ms), nil, RuntimeThrottled},
		{"kept long enough", was(RuntimeThrottled, 3000*ms), nil, ""},
		{"kept beside a milder one", was(RuntimeThrottled, time.Second), since{NodePressure: time.Minute}, RuntimeThrottled},
		{"not beside a worse one", was(FDsRunningOut, time.Second), since{KubeletDown: 0}, KubeletDown},
		{"unknown is not kept", was(Unknown, time.Second), nil, ""},

		{"a new one of the same layer waits", was(RuntimeListStall, 0), since{RuntimeListStall: time.Minute, RuntimeUnresponsive: 1900 * ms}, RuntimeListStall},
		{"and has its turn", was(RuntimeListStall, 0), since{RuntimeListStall: time.Minute, RuntimeUnresponsive: 2000 * ms}, RuntimeUnresponsive},
		{"a lower layer does not wait", was(RuntimeUnresponsive, 0), since{RuntimeUnresponsive: time.Minute, AcceptFDExhausted: 0}, AcceptFDExhausted},
		{"nor does a worse one", was(RelistSlow, 0), since{RelistSlow: time.Minute, KubeletDown: 0}, KubeletDown},
		{"a new one waits where the old one has just gone", was(RuntimeUnresponsive, time.Second), since{RuntimeListStall: time.Second}, RuntimeUnresponsive},
		{"not known, and the kubelet is down", nil, since{Unknown: 0, KubeletDown: time.Hour}, Unknown},
	} {
		if v := judged(tt.before, tt.active); v.Reason != tt.want {
			t.Errorf("%s: %q, want %q: %v", tt.name, v.Reason, tt.want, listed(v))
		}
	}
}

// TestStartIsNotHeld: a runtime that has started beside plegd leaves no reason behind.
func TestStartIsNotHeld(t *testing.T) {
	before := facts.Active{ID: RuntimeStarting, Severity: facts.SeverityCritical, Since: t0.Add(-2 * time.Second), Seen: t0.Add(-time.Second)}
	f := healthyFacts(t0)
	v := Judge(&f, t0, &facts.Verdict{State: facts.StateStarting, Reason: before.ID, Active: []facts.Active{before}})
	if v.State != facts.StateHealthy || v.Reason != "" {
		t.Errorf("the first verdict after the start: %s", listed(v))
	}
}

// TestBlind: a blind spot of plegd alone is no evidence about the node.
func TestBlind(t *testing.T) {
	f := healthyFacts(t0)
	failing(&f, 300, "Unavailable")
	f.Status.LastGood = f.Relist.LastSeen
	f.Dial = facts.Dial{At: t0, Cause: facts.CausePermissionDenied, Detail: "permission denied"}
	v := Judge(&f, t0, nil)
	if v.State != facts.StateUnknown || v.NotReadyIn != nil || v.RulesFailIn != nil || v.KubeletMessage != "" || !v.NodeReady {
		t.Errorf("may not connect: %s, NotReady in %v, %q", v.State, v.NotReadyIn, v.KubeletMessage)
	}
	f.Evidence.Kubelet = &facts.Kubelet{Seen: true, Refused: true, FailedSince: t0.Add(-time.Minute)}
	if v := Judge(&f, t0, nil); v.State != facts.StateUnhealthy || v.ActiveReason(KubeletDown) == nil {
		t.Errorf("may not connect, and the kubelet is down: %s", listed(v))
	}
}

// TestMissedEvidence: evidence that is missing for a moment lengthens the hold of a reason,
// but not of an event: each start of the runtime is a new event. Between two judgements
// that both have seen the evidence nothing was missing, however far apart they are.
func TestMissedEvidence(t *testing.T) {
	now := t0.Add(time.Minute)
	for _, tt := range []struct {
		id   string
		held bool
		want time.Duration
	}{
		{id: RuntimeListStall, held: true, want: 5 * time.Second},
		{id: RuntimeListStall},
		{id: NetworkNotReady},
		{id: RuntimeStarting, held: true},
	} {
		before := facts.Active{ID: tt.id, Severity: facts.SeverityCritical, Since: t0, Seen: now.Add(-5 * time.Second), Held: tt.held}
		w := &signals{f: &facts.Facts{}, moment: now, previous: &facts.Verdict{Active: []facts.Active{before}}}
		check.Equal(t, activated(w, reasonOf(tt.id), nil).Missed, tt.want, "%s, held %v: missed for", tt.id, tt.held)
	}
}

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

// TestFlapping counts how often the primary reason changes after the first 10 s of two
// minutes of one fault with evidence that flickers: once at most, or with each burst. The judge looks every 250 ms, evidence and calls
// change once a second.
func TestFlapping(t *testing.T) {
	const ms = time.Millisecond

	uniform := func(r *rand.Rand, a, b float64) float64 { return a + (b-a)*r.Float64() }
	lists := func(f *facts.Facts, r *rand.Rand, share float64, slow time.Duration) {
		d := 5 * ms
		if r.Float64() < share {
			d = slow
		}
		f.Relist.Lists = append(f.Relist.Lists, d)
	}
	hangs := func(f *facts.Facts, now time.Time, for_ time.Duration, all bool) {
		since := now.Add(-for_)
		f.Relist.InFlight = &facts.InFlight{Start: since, Phase: facts.PhaseListContainers, PhaseStart: since}
		if all {
			f.Calls = map[string]facts.Call{opVersion: {LastOK: since.Add(-time.Second), InFlightSince: since}}
		} else {
			f.Calls = map[string]facts.Call{opVersion: {LastOK: now, LastOKDuration: 5 * ms}}
		}
	}
	pod := func(now time.Time) *facts.Process {
		return &facts.Process{At: now, PID: 1, Alive: true, Start: now.Add(-time.Hour), OpenFDs: 20, MaxFDs: 1024}
	}
	for _, tt := range []struct {
		name   string
		want   string
		bursts int // begins and ends of the fault itself
		step   func(f *facts.Facts, r *rand.Rand, now time.Time, s int)
	}{
		{"a CPU quota, samples vary", RuntimeThrottled, 0, func(f *facts.Facts, r *rand.Rand, now time.Time, s int) {
			lists(f, r, .4, 600*ms)
			f.Evidence.Cgroup = &facts.Cgroup{At: now, Throttled: uniform(r, .05, .9), ThrottledPeriods: uniform(r, .1, 1)}
		}},
		{"starved of CPU, samples vary", RuntimeStarved, 0, func(f *facts.Facts, r *rand.Rand, now time.Time, s int) {
			lists(f, r, .6, 600*ms)
			p := pod(now)
			p.Delay, p.CPU, p.DelayPerRun = uniform(r, .3, 1.5), uniform(r, 0, .2), time.Duration(uniform(r, 60, 300))*ms
			f.Evidence.Process, f.Evidence.Cgroup = p, &facts.Cgroup{At: now}
		}},
		{"node short of CPU, around the threshold", NodePressure, 0, func(f *facts.Facts, r *rand.Rand, now time.Time, s int) {
			f.Relist.Lists = append(f.Relist.Lists, 600*ms)
			f.Evidence.Node = &facts.Node{CPUSome: uniform(r, 70, 90), CPUIdle: uniform(r, .12, .28)}
		}},
		{"memory limit, answered in between", RuntimeMemoryLimited, 0, func(f *facts.Facts, r *rand.Rand, now time.Time, s int) {
			lists(f, r, .5, 600*ms)
			f.Evidence.Process = pod(now)
			f.Evidence.Cgroup = &facts.Cgroup{At: now, MemoryLimits: []facts.MemoryLimit{{Path: "/x", Usage: 99, Max: 100, MaxEvents: 10}}, Pressure: &facts.CgroupPressure{MemoryFull: uniform(r, 15, 40), CPUSome: -1, IOSome: -1}}
		}},
		{"200 pods change every 40 s", "", 6, func(f *facts.Facts, r *rand.Rand, now time.Time, s int) {
			if at := s % 40; at < 25 {
				f.Modelled.InspectingSince, f.Modelled.BusySince, f.Modelled.Inspecting = now.Add(-time.Duration(at)*time.Second), now.Add(-time.Duration(at)*time.Second), 200-8*at
				f.Modelled.LastSeen = now.Add(-time.Duration(at) * time.Second)
			}
		}},
		{"garbage, or hung up at once", CRIVersionUnsupported, 0, func(f *facts.Facts, r *rand.Rand, now time.Time, s int) {
			failing(f, 10+s, "Unavailable")
			f.Relist.LastSeen = now.Add(-time.Duration(10+s) * time.Second)
			f.Modelled.LastSeen = f.Relist.LastSeen
			f.Relist.Last.Start, f.Relist.Last.End = now.Add(-20*ms), now.Add(-10*ms)
			f.Calls = map[string]facts.Call{}
			f.Probe = facts.Probe{At: now, Stage: facts.StageSettings, Cause: facts.CauseProtocol, FailedSince: t0, Failures: s, ForeignAt: t0}
			if r.IntN(2) == 0 {
				f.Probe.Cause = facts.CauseClosed
			}
		}},
		{"containers and descriptors around their limits", "", 0, func(f *facts.Facts, r *rand.Rand, now time.Time, s int) {
			p := pod(now)
			p.OpenFDs = int(uniform(r, 790, 850))
			f.Evidence.Process = p
			f.Pods = &facts.Pods{Containers: map[string]int{"exited": int(uniform(r, 4900, 5100))}}
		}},
		{"relists around the slow threshold", RelistSlow, 0, func(f *facts.Facts, r *rand.Rand, now time.Time, s int) {
			f.Relist.Lists = append(f.Relist.Lists, time.Duration(uniform(r, 1500, 2700))*ms)
		}},
		{"hangs now this way, now that", "", 0, func(f *facts.Facts, r *rand.Rand, now time.Time, s int) {
			switch r.IntN(4) {
			case 0:
				hangs(f, now, 3*time.Second, true)
			case 1, 2:
				hangs(f, now, 3*time.Second, false)
			}
		}},
		{"stopped for a part of every second", RuntimeFrozen, 0, func(f *facts.Facts, r *rand.Rand, now time.Time, s int) {
			p := pod(now)
			p.Threads = map[string]int{"S": 9}
			p.StoppedAt = now.Add(-time.Duration(uniform(r, 0, 1200)) * ms)
			p.Stops = []time.Time{p.StoppedAt.Add(-time.Second), p.StoppedAt}
			f.Evidence.Process = p
		}},
		{"Status fails, lists at the edge", RuntimeNotReady, 0, func(f *facts.Facts, r *rand.Rand, now time.Time, s int) {
			f.Status.LastErr = &facts.CallError{Operation: opStatus, Code: "Unknown", Message: "x"}
			f.Status.LastGood = t0
			lists(f, r, .3, 1700*ms)
			f.Relist.AnsweredSince = t0.Add(-time.Hour)
			f.Calls = map[string]facts.Call{opStatus: {LastFailed: now.Add(-time.Duration(s%5)*time.Second - 10*ms), LastErr: f.Status.LastErr}, "list_containers": {LastOK: now.Add(-time.Duration(uniform(r, 0, 1500)) * ms), LastOKDuration: 5 * ms}}
		}},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		var previous *facts.Verdict
		var history []time.Duration
		changes := 0
		for s := range 120 {
			at := t0.Add(time.Duration(s) * time.Second)
			f := healthyFacts(at)
			f.Relist.Lists = history
			tt.step(&f, r, at, s)
			history = f.Relist.Lists
			for q := range 4 {
				now := at.Add(time.Duration(q) * 250 * ms)
				v := Judge(&f, now, previous)
				if previous != nil && previous.Reason != v.Reason && s >= 10 {
					changes++
				}
				previous = v
				if tt.want != "" && v.Reason != tt.want && v.Reason != "" && q+s > 20 {
					t.Errorf("%s: %s after %ds, want %s", tt.name, v.Reason, s, tt.want)
				}
			}
		}
		if most := max(1, tt.bursts); changes > most {
			t.Errorf("%s: the primary reason changes %d times, at most %d", tt.name, changes, most)
		}
	}
}
