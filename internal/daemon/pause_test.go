package daemon

import (
	"slices"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/health"
)

// pausedNode is a node whose clocks and samples a test moves.
type pausedNode struct {
	t        *testing.T
	p        *pauses
	now      time.Time
	asleep   time.Duration
	activity evidence.Activity
	f        health.Facts
	previous *health.Verdict
}

// newPausedNode is a node that makes 1000 context switches a second, with a
// runtime that uses 1 % of a core.
func newPausedNode(t *testing.T) *pausedNode {
	n := &pausedNode{t: t, now: time.Now()}
	n.p = newPauses(func() *evidence.Activity { a := n.activity; return &a })
	n.p.suspended = func() time.Duration { return n.asleep }
	n.activity = evidence.Activity{At: n.now, Rate: 1000}
	yes := &health.Condition{Status: true}
	n.f = health.Facts{
		Config:   health.Config{RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute, RPCTimeout: 2 * time.Minute},
		Started:  n.now.Add(-time.Hour),
		Endpoint: health.Endpoint{Path: "/run/containerd/containerd.sock"},
		Status:   health.Status{Answered: true, RuntimeReady: yes, NetworkReady: yes},
		Calls:    map[string]health.Call{},
		Evidence: health.Evidence{Process: &health.Process{PID: 7, Alive: true, OpenFDs: -1, MaxFDs: -1, CPU: .01}},
	}
	n.answer()
	n.sample(.01)
	return n
}

// answer makes the runtime have answered everything now.
func (n *pausedNode) answer() {
	n.f.Relist.Last = &health.RelistResult{Start: n.now, End: n.now.Add(5 * time.Millisecond)}
	n.f.Relist.LastSeen, n.f.Modelled.LastSeen, n.f.Status.LastGood = n.now, n.now, n.now
	n.f.Relist.InFlight = nil
}

// sample makes the process be looked at now.
func (n *pausedNode) sample(cpu float64) {
	p := *n.f.Evidence.Process
	p.At, p.CPU = n.now, cpu
	n.f.Evidence.Process = &p
}

// pass lets time pass in which plegd does not judge and the kernel makes so many
// context switches.
func (n *pausedNode) pass(d time.Duration, switches uint64) {
	n.now = n.now.Add(d)
	n.activity.At, n.activity.Switches = n.now, n.activity.Switches+switches
}

// judge judges now.
func (n *pausedNode) judge() *health.Verdict {
	f := n.p.look(n.now, &n.f)
	n.previous = n.p.judged(n.now, &f, health.Judge(&f, n.now, n.previous), n.previous)
	return n.previous
}

// calm judges four times a second for a while in which the runtime answers.
func (n *pausedNode) calm(d time.Duration) {
	n.t.Helper()
	for end := n.now.Add(d); n.now.Before(end); {
		n.pass(judgeEvery, 250)
		n.answer()
		n.sample(.01)
		if v := n.judge(); v.State != health.StateHealthy {
			n.t.Fatalf("%s (%s) while the runtime answers", v.State, v.Reason)
		}
	}
}

func (n *pausedNode) expect(state health.State, reason string) {
	n.t.Helper()
	if v := n.judge(); v.State != state || v.Reason != reason {
		n.t.Fatalf("%s %q, want %s %q; active %v", v.State, v.Reason, state, reason, v.Active)
	}
}

// TestStoppedMachine: a virtual machine that was stopped for a minute has not
// been without a good Status for a minute.
func TestStoppedMachine(t *testing.T) {
	n := newPausedNode(t)
	n.calm(5 * time.Second)
	n.pass(time.Minute, 40) // what the kernel does as it wakes
	n.sample(0)
	n.expect(health.StateHealthy, "") // held back
	n.pass(judgeEvery, 250)
	n.expect(health.StateHealthy, "")
	n.pass(judgeEvery, 250)
	n.answer()
	n.expect(health.StateHealthy, health.NodePaused)
	if p := n.p.last; p.Kind != health.PauseMachine || p.Duration != time.Minute-judgeEvery {
		t.Errorf("a pause of kind %s for %s", p.Kind, p.Duration)
	}
	n.pass(6*time.Minute, 360_000)
	n.answer()
	n.calm(time.Second)
	n.expect(health.StateHealthy, "")
}

// TestStoppedMachineWithASickRuntime: the ages leave out the pause, and nothing
// else: a runtime that was silent for 20 s before it has 10 s left after it.
func TestStoppedMachineWithASickRuntime(t *testing.T) {
	n := newPausedNode(t)
	n.calm(5 * time.Second)
	n.f.Relist.InFlight = &health.InFlight{Start: n.now, Phase: health.PhaseListPodSandbox, PhaseStart: n.now}
	for range 80 { // 20 s
		n.pass(judgeEvery, 250)
		n.judge()
	}
	if n.previous.State != health.StateDegraded {
		t.Fatalf("20 s into a hang: %s", n.previous.State)
	}
	n.pass(10*time.Minute, 40)
	n.sample(0)
	for range 12 { // 3 s
		n.expect(health.StateDegraded, n.previous.Reason)
		n.pass(judgeEvery, 250)
	}
	v := n.judge()
	if v.State != health.StateDegraded || v.NotReadyIn == nil || *v.NotReadyIn > 8*time.Second || *v.NotReadyIn < 5*time.Second {
		t.Fatalf("after the pause: %s, NotReady in %v, want some 7 s", v.State, v.NotReadyIn)
	}
	n.pass(8*time.Second, 8000)
	n.p.looked = n.now // judged meanwhile
	if v := n.judge(); v.State != health.StateUnhealthy {
		t.Errorf("30 s without a good Status beside the pause: %s", v.State)
	}
}

// TestPlegdAloneStopped: the kernel ran, so did the kubelet. A runtime that
// answers is well, and one that is sick has no excuse.
func TestPlegdAloneStopped(t *testing.T) {
	t.Run("the runtime is well", func(t *testing.T) {
		n := newPausedNode(t)
		n.calm(5 * time.Second)
		n.pass(time.Minute, 60_000)
		n.sample(.01)
		n.expect(health.StateHealthy, "") // held back: the last good Status is a minute old
		n.pass(judgeEvery, 250)
		n.answer()
		n.expect(health.StateHealthy, "")
	})
	t.Run("the runtime is sick", func(t *testing.T) {
		n := newPausedNode(t)
		n.calm(5 * time.Second)
		n.pass(time.Minute, 60_000)
		n.sample(0)
		n.f.Relist.InFlight = &health.InFlight{Start: n.now, Phase: health.PhaseListPodSandbox, PhaseStart: n.now}
		for range 12 {
			n.judge()
			n.pass(judgeEvery, 250)
		}
		if v := n.judge(); v.State != health.StateUnhealthy {
			t.Errorf("3 s after the pause: %s, want unhealthy: the kubelet has counted", v.State)
		}
	})
}

// TestPlegdAndRuntimeStopped: the runtime used no CPU time and answers again.
func TestPlegdAndRuntimeStopped(t *testing.T) {
	n := newPausedNode(t)
	n.calm(5 * time.Second)
	n.pass(time.Minute, 60_000)
	n.sample(0)
	n.expect(health.StateHealthy, "")
	n.pass(judgeEvery, 250)
	n.answer()
	n.expect(health.StateHealthy, health.NodePaused)
	if p := n.p.last; p.Kind != health.PauseRuntime || len(n.p.machine) != 0 {
		t.Errorf("a pause of kind %s, %d that ages do not count; want none of the machine", p.Kind, len(n.p.machine))
	}
}

// TestSuspended: CLOCK_MONOTONIC stands still in a suspend, and so do all ages.
func TestSuspended(t *testing.T) {
	n := newPausedNode(t)
	n.calm(5 * time.Second)
	n.asleep += time.Hour
	n.pass(judgeEvery, 250)
	n.expect(health.StateHealthy, health.NodePaused)
	if p := n.p.last; p.Kind != health.PauseSuspend || p.Duration != time.Hour {
		t.Errorf("a pause of kind %s for %s", p.Kind, p.Duration)
	}
}

// TestCallUnderWayInAPause: a relist that was under way fails by its deadline as
// soon as the machine runs again, and says nothing of the runtime.
func TestCallUnderWayInAPause(t *testing.T) {
	n := newPausedNode(t)
	n.calm(5 * time.Second)
	began := n.now
	n.pass(3*time.Minute, 40)
	n.sample(0)
	n.f.Relist.Last = &health.RelistResult{Start: began, End: n.now, Err: &health.CallError{Operation: "list_containers", Code: "DeadlineExceeded"}}
	n.f.Relist.Failures = 1
	for range 4 {
		n.expect(health.StateHealthy, "")
		n.pass(judgeEvery, 250)
	}
	n.f.Relist.Failures = 0
	n.answer()
	n.expect(health.StateHealthy, health.NodePaused)
}

// TestMoveTimes: every time of the facts is moved, in a copy.
func TestMoveTimes(t *testing.T) {
	n := newPausedNode(t)
	n.f.Evidence.Children = &health.Children{Stuck: []health.Child{{Since: n.now}}}
	n.f.Calls["version"] = health.Call{LastOK: n.now}
	out := moveTimes(n.f, func(t time.Time) time.Time { return t.Add(time.Minute) })
	want := n.now.Add(time.Minute)
	got := []time.Time{out.Relist.LastSeen, out.Relist.Last.Start, out.Calls["version"].LastOK, out.Evidence.Children.Stuck[0].Since, out.Evidence.Process.At}
	if i := slices.IndexFunc(got, func(t time.Time) bool { return !t.Equal(want) }); i >= 0 {
		t.Errorf("time %d is %s, want %s", i, got[i], want)
	}
	if !out.Relist.AnsweredSince.IsZero() {
		t.Error("a time that is not set was moved")
	}
	if !n.f.Relist.LastSeen.Equal(n.now) || !n.f.Evidence.Children.Stuck[0].Since.Equal(n.now) {
		t.Error("the facts themselves were changed")
	}
}
