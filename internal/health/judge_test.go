package health

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// failing makes the last n relists have failed.
func failing(f *facts.Facts, n int, code string) {
	f.Relist.Failures = n
	f.Relist.LastSeen = t0.Add(-time.Duration(n) * time.Second)
	f.Modelled.LastSeen = f.Relist.LastSeen
	f.Relist.Last.Err = &facts.CallError{Operation: "list_podsandbox", Code: code, Message: "m"}
}

// answering are the facts of a node whose lists are answered.
func answering() facts.Facts {
	f := healthyFacts(t0)
	f.Calls = map[string]facts.Call{"list_containers": {LastOK: t0.Add(-100 * time.Millisecond)}}
	return f
}

// named reports a primary reason of the facts that is not the wanted one.
func named(t *testing.T, name string, f *facts.Facts, want string) {
	t.Helper()
	if v := Judge(f, t0, nil); v.Reason != want {
		t.Errorf("%s: %q, want %q: %v", name, v.Reason, want, v.Active)
	}
}

func TestRulesFailIn(t *testing.T) {
	// ends makes the modelled relist, which began 100 s ago, end by then, beside a phase of plegd's own.
	ends := func(by time.Duration, phase facts.Phase, since time.Duration, lists ...time.Duration) func(*facts.Facts) {
		return func(f *facts.Facts) {
			f.Modelled = facts.Modelled{LastSeen: ago(100 * time.Second), BusySince: ago(100 * time.Second), EndsBy: at(by)}
			f.Relist.InFlight, f.Relist.Lists = &facts.InFlight{Start: ago(3 * time.Second), Phase: phase, PhaseStart: ago(since)}, lists
		}
	}
	const s = time.Second
	for _, tt := range []struct {
		name   string
		change func(*facts.Facts)
		want   float64 // seconds; -1 for null
	}{
		{"well", func(*facts.Facts) {}, -1},
		{"a relist in flight for two periods", func(f *facts.Facts) {
			f.Relist.InFlight = &facts.InFlight{Start: t0.Add(-2 * time.Second), Phase: facts.PhaseInspect, PhaseStart: t0.Add(-2 * time.Second)}
		}, -1},
		{"a relist in flight for more", func(f *facts.Facts) {
			f.Relist.InFlight = &facts.InFlight{Start: t0.Add(-2001 * time.Millisecond), Phase: facts.PhaseInspect, PhaseStart: t0}
			f.Relist.LastSeen = t0.Add(-5 * time.Second)
		}, 175},
		{"the modelled kubelet's relist in flight for more", func(f *facts.Facts) {
			f.Modelled = facts.Modelled{LastSeen: t0.Add(-100 * time.Second), BusySince: t0.Add(-100 * time.Second)}
		}, 80},
		{"it inspects, and ends in time", ends(78*s, facts.PhaseInspect, 3*s), -1},
		{"its next lists are a period later", ends(79500*time.Millisecond, facts.PhaseInspect, 3*s), 80},
		{"and take as long as the last", ends(78*s, facts.PhaseInspect, 3*s, s, 1500*time.Millisecond), 80},
		{"it ends in time, and the next lists hang", ends(0, facts.PhaseListContainers, 3*s), 80},
		{"they have just begun", ends(0, facts.PhaseListContainers, 0), -1},
		{"they have failed", func(f *facts.Facts) { ends(0, facts.PhaseInspect, 0)(f); f.Relist.Failures = 1 }, 80},
		{"a relist failed", func(f *facts.Facts) { failing(f, 1, "Internal") }, 179},
		{"Status 10 s old", func(f *facts.Facts) { f.Status.LastGood = t0.Add(-10 * time.Second) }, -1},
		{"Status older", func(f *facts.Facts) { f.Status.LastGood = t0.Add(-10001 * time.Millisecond) }, 19.999},
		{"both: the first to trip counts", func(f *facts.Facts) {
			failing(f, 20, "Internal")
			f.Status.LastGood = t0.Add(-12 * time.Second)
		}, 18},
		{"both, the relist first", func(f *facts.Facts) {
			failing(f, 170, "Internal")
			f.Status.LastGood = t0.Add(-12 * time.Second)
		}, 10},
		{"nothing can connect: Status will fare no better", func(f *facts.Facts) {
			failing(f, 2, "Unavailable")
			f.Dial = facts.Dial{At: t0, Cause: facts.CauseRefused}
			f.Status.LastGood = t0.Add(-4 * time.Second)
		}, 26},
		{"tripped", func(f *facts.Facts) { f.Status.NetworkReady = nil }, 0},
		{"never seen: from plegd's start", func(f *facts.Facts) {
			failing(f, 5, "Internal")
			f.Started = t0.Add(-5 * time.Second)
			f.Relist.LastSeen, f.Modelled.LastSeen = time.Time{}, time.Time{}
		}, 175},
	} {
		f := healthyFacts(t0)
		tt.change(&f)
		v := Judge(&f, t0, nil)
		switch {
		case v.State == facts.StateHealthy && (v.RulesFailIn != nil || v.NotReadyIn != nil || v.NotReadyInLatest != nil):
			t.Errorf("%s: a healthy verdict counts down: rules %v, NotReady %v to %v", tt.name, v.RulesFailIn, v.NotReadyIn, v.NotReadyInLatest)
		case v.State != facts.StateHealthy && tt.want == -1 && v.RulesFailIn != nil:
			t.Errorf("%s: %s, rules fail in %v, want no countdown", tt.name, v.State, v.RulesFailIn)
		case v.State != facts.StateHealthy && tt.want != -1 && (v.RulesFailIn == nil || v.RulesFailIn.Seconds() != tt.want):
			t.Errorf("%s: %s, rules fail in %v, want %gs", tt.name, v.State, v.RulesFailIn, tt.want)
		}
	}
}

// TestStarting: `starting` lasts until the first success of both, or until one
// of the kubelet's rules has had its full time since plegd started.
func TestStarting(t *testing.T) {
	never := func(f *facts.Facts, age time.Duration) {
		f.Started = t0.Add(-age)
		f.Relist = facts.Relist{Attempts: 1, InFlight: &facts.InFlight{Start: f.Started, Phase: facts.PhaseListPodSandbox, PhaseStart: f.Started}}
		f.Modelled = facts.Modelled{BusySince: f.Started}
	}
	for _, tt := range []struct {
		name   string
		change func(*facts.Facts)
		want   facts.State
	}{
		{"neither yet", func(f *facts.Facts) { never(f, time.Second); f.Status = facts.Status{} }, facts.StateStarting},
		{"a Status, no relist yet", func(f *facts.Facts) { never(f, time.Second) }, facts.StateStarting},
		{"a Status, no relist for 3 min", func(f *facts.Facts) { never(f, 3*time.Minute) }, facts.StateStarting},
		{"a Status, no relist for more", func(f *facts.Facts) { never(f, 3*time.Minute+time.Millisecond) }, facts.StateUnhealthy},
		{"a relist, no Status yet", func(f *facts.Facts) { f.Started = t0.Add(-29 * time.Second); f.Status = facts.Status{} }, facts.StateStarting},
		{"a relist, no Status for 30 s", func(f *facts.Facts) { f.Started = t0.Add(-30 * time.Second); f.Status = facts.Status{} }, facts.StateUnhealthy},
		{"Status says not ready: that rule takes no time", func(f *facts.Facts) {
			never(f, facts.HangAfter)
			f.Status.NetworkReady = nil
		}, facts.StateUnhealthy},
		{"and the first relist has neither ended nor hangs", func(f *facts.Facts) {
			never(f, facts.HangAfter-time.Millisecond)
			f.Status.NetworkReady = nil
		}, facts.StateStarting},
		{"restored, away for a moment: nothing is answered yet", func(f *facts.Facts) {
			never(f, 100*time.Millisecond)
			f.UnobservedGap = 2 * time.Second
			f.Relist.LastSeen, f.Modelled.LastSeen = t0.Add(-3*time.Second), t0.Add(-3*time.Second)
		}, facts.StateStarting},
		{"restored after four minutes away: nothing is known yet", func(f *facts.Facts) {
			never(f, 100*time.Millisecond)
			f.UnobservedGap = 4 * time.Minute
			f.Relist.LastSeen, f.Modelled.LastSeen = t0.Add(-4*time.Minute), t0.Add(-4*time.Minute)
			f.Status.LastGood, f.Status.Restored = t0.Add(-4*time.Minute), true
		}, facts.StateStarting},
		{"and the runtime hangs: now it is", func(f *facts.Facts) {
			never(f, 3*time.Second)
			f.UnobservedGap = 4 * time.Minute
			f.Relist.LastSeen, f.Modelled.LastSeen = t0.Add(-4*time.Minute), t0.Add(-4*time.Minute)
			f.Status.LastGood, f.Status.Restored = t0.Add(-4*time.Minute), true
			f.Status.InFlightSince = f.Started
		}, facts.StateUnhealthy},
	} {
		f := healthyFacts(t0)
		tt.change(&f)
		if v := Judge(&f, t0, nil); v.State != tt.want {
			t.Errorf("%s: state %s (%s), want %s", tt.name, v.State, v.Reason, tt.want)
		}
	}
}

// TestSinceIsKept: a reason that stands at each judgement is no reason that flickers, also where
// these are seconds apart; it says so while its evidence is missing, and then ends.
func TestSinceIsKept(t *testing.T) {
	f := healthyFacts(t0)
	f.Status.NetworkReady = nil
	first := Judge(&f, t0, nil)
	later := Judge(&f, t0.Add(3*minGap), first)
	if !later.Since.Equal(t0) || !later.Active[0].Since.Equal(t0) {
		t.Errorf("state since %s, reason since %s; want both %s", later.Since, later.Active[0].Since, t0)
	}
	f.Status.NetworkReady = f.Status.RuntimeReady
	held := Judge(&f, later.Active[0].Seen.Add(time.Second), later)
	if later.Active[0].Held || held.Reason != NetworkNotReady || !held.Active[0].Held {
		t.Errorf("held %v with its evidence, %q held %v without", later.Active[0].Held, held.Reason, held.Active[0].Held)
	}
	end := later.Active[0].Seen.Add(holdFor)
	if well := Judge(&f, end, held); well.State != facts.StateHealthy || !well.Since.Equal(end) {
		t.Errorf("%s since %s, want healthy since the change", well.State, well.Since)
	}
}

// TestRelistSlowDoesNotFlap: it begins above 2 s twice, and ends below 1 s.
func TestRelistSlowDoesNotFlap(t *testing.T) {
	var previous *facts.Verdict
	for i, step := range []struct {
		lists []time.Duration
		want  bool
	}{
		{[]time.Duration{0, 2100 * time.Millisecond}, false},
		{[]time.Duration{2100 * time.Millisecond, 2100 * time.Millisecond}, true},
		{[]time.Duration{2100 * time.Millisecond, 1900 * time.Millisecond}, true},
		{[]time.Duration{1900 * time.Millisecond, 1100 * time.Millisecond}, true},
		{[]time.Duration{1100 * time.Millisecond, 900 * time.Millisecond}, false},
		{[]time.Duration{900 * time.Millisecond, 1900 * time.Millisecond}, false},
	} {
		f := healthyFacts(t0)
		f.Relist.Lists = step.lists
		v := Judge(&f, t0.Add(time.Duration(i)*holdFor), previous)
		check.Equal(t, v.ActiveReason(RelistSlow) != nil, step.want, "step %d, lists %v: RelistSlow", i, step.lists)
		previous = v
	}
}

// TestKeptFor3Seconds: a reason without evidence is not kept while relists continue to
// fail: after 3 s the verdict depends on the present facts.
func TestKeptFor3Seconds(t *testing.T) {
	f := healthyFacts(t0)
	failing(&f, 3, "Unavailable")
	f.Dial = facts.Dial{At: t0, Cause: facts.CausePermissionDenied, Detail: "permission denied"}
	v := Judge(&f, t0, nil)
	f.Dial = facts.Dial{At: t0.Add(time.Millisecond)}
	for ms := 250; ms <= 8000; ms += 250 {
		now := t0.Add(time.Duration(ms) * time.Millisecond)
		f.Relist.Failures = 3 + ms/1000
		f.Relist.Last.Start, f.Relist.Last.End = now.Add(-100*time.Millisecond), now.Add(-90*time.Millisecond)
		v = Judge(&f, now, v)
		want := RuntimeSocketPermissionDenied
		if ms >= 3000 {
			want = Unknown
		}
		must.Equal(t, v.Reason, want, "%d ms after its evidence was last true", ms)
		if kept := v.ActiveReason(want); want != Unknown && !kept.Seen.Equal(t0) {
			t.Fatalf("%d ms: seen at %s, want %s", ms, kept.Seen, t0)
		}
	}
}

// The number of containers alone does not increase the sampling rate; any fault of
// calls or processes does.
func TestCloserLook(t *testing.T) {
	many := func(f *facts.Facts) { f.Pods = &facts.Pods{Containers: map[string]int{"running": 10_000}} }
	exhausted := func(f *facts.Facts) {
		f.Evidence.Process = &facts.Process{PID: 7, Alive: true, OpenFDs: 990, MaxFDs: 1000}
	}
	noNetwork := func(f *facts.Facts) { f.Status.NetworkReady = nil }
	for _, tt := range []struct {
		name    string
		changes []func(*facts.Facts)
		state   facts.State
		want    bool
	}{
		{"well", nil, facts.StateHealthy, false},
		{"many containers", []func(*facts.Facts){many}, facts.StateDegraded, false},
		{"descriptors nearly used up", []func(*facts.Facts){exhausted}, facts.StateDegraded, true},
		{"both", []func(*facts.Facts){many, exhausted}, facts.StateDegraded, true},
		{"the runtime reports no network", []func(*facts.Facts){many, noNetwork}, facts.StateUnhealthy, false},
		{"unhealthy", []func(*facts.Facts){noNetwork, exhausted}, facts.StateUnhealthy, true},
	} {
		f := healthyFacts(t0)
		for _, change := range tt.changes {
			change(&f)
		}
		if v := Judge(&f, t0, nil); v.State != tt.state || CloserLook(v) != tt.want {
			t.Errorf("%s: %s %+v: a closer look is %t, want %s and %t", tt.name, v.State, v.Active, CloserLook(v), tt.state, tt.want)
		}
	}
}
