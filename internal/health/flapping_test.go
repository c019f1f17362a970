package health

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

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
