package health

import (
	"fmt"
	"testing"
	"time"
)

// TestAcceptsAgain: containerd notices up to a second late that it has
// descriptors again, and then works its queue off. Nothing else is the matter
// meanwhile.
func TestAcceptsAgain(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name                     string
		exhausted, fell, waiting time.Duration // ago; 0: never, now
		length                   int
		want                     string
	}{
		{"none is free", 0, 0, 5 * time.Second, 3, AcceptFDExhausted},
		{"some are free again, and it has yet to notice", 900 * ms, 0, 5 * time.Second, 3, AcceptFDExhausted},
		{"the same with the queue full", 900 * ms, 0, 5 * time.Second, 129, AcceptFDExhausted},
		{"it works its queue off", 900 * ms, 200 * ms, 200 * ms, 3, ""},
		{"it began to, and stopped", 2900 * ms, 2200 * ms, 2200 * ms, 3, AcceptFDExhausted},
		{"it ought to have noticed long since", 4 * time.Second, 0, 5 * time.Second, 3, AcceptStalled},
		{"it has, slowly", 4 * time.Second, 300 * ms, 300 * ms, 3, ""},
		{"the queue is empty", 900 * ms, 200 * ms, 0, 0, ""},
	} {
		f := answering()
		p := &Process{At: t0, PID: 1, Alive: true, Start: t0.Add(-time.Hour), OpenFDs: 20, MaxFDs: 1024, ExhaustedAt: t0.Add(-tt.exhausted)}
		if tt.exhausted == 0 {
			p.OpenFDs = 1024
		}
		q := &Queue{At: t0, Listening: true, Length: tt.length, Limit: 128}
		if tt.waiting > 0 {
			q.WaitingSince = t0.Add(-tt.waiting)
		}
		if tt.fell > 0 {
			q.FellAt = t0.Add(-tt.fell)
		}
		f.Evidence.Process, f.Evidence.Queue = p, q
		// A probe still waits in it.
		f.Probe = Probe{At: t0.Add(-5 * time.Second), Stage: StageSettings, Cause: CauseTimeout, FailedSince: t0.Add(-5 * time.Second), Failures: 1}
		named(t, tt.name, &f, tt.want)
	}
}

// TestStarvedWhileAccepting: a runtime that gets no CPU accepts late, whether its
// lists are slow yet or not.
func TestStarvedWhileAccepting(t *testing.T) {
	f := answering()
	f.Evidence.Process = &Process{At: t0, PID: 1, Alive: true, Start: t0.Add(-time.Hour), OpenFDs: 20, MaxFDs: 1024, Delay: 1.9, CPU: .05, DelayPerRun: 300 * time.Millisecond}
	f.Evidence.Cgroup = &Cgroup{At: t0}
	f.Evidence.Queue = &Queue{At: t0, Listening: true, Length: 1, Limit: 128, WaitingSince: t0.Add(-3 * time.Second)}
	named(t, "judged", &f, RuntimeStarved)
	f.Woke = t0.Add(-3 * time.Second)
	if v := Judge(&f, t0, nil); v.Reason == RuntimeStarved {
		t.Errorf("the pause counts as a wait for a CPU: %v", v.Active)
	}
	f.Woke = t0.Add(-time.Minute)
	named(t, "a minute after a pause", &f, RuntimeStarved)
	f.Woke = time.Time{}
	f.Evidence.Process.Delay = 0
	named(t, "with a CPU", &f, AcceptStalled)
	// What the process shows is of before the dial ran into its time limit.
	f.Probe = Probe{At: t0.Add(-1200 * time.Millisecond), FailedSince: t0.Add(-1200 * time.Millisecond), Stage: StageSettings, Cause: CauseTimeout}
	f.Evidence.Process.At = t0.Add(-800 * time.Millisecond)
	if v := Judge(&f, t0, nil); v.Reason == AcceptStalled {
		t.Errorf("it may get no CPU: %v", v.Active)
	}
}

// TestAcceptsAfterStop: after a stop so short that no list was slow for it, neither
// process nor accept queue have been looked at again when the first list is answered.
func TestAcceptsAfterStop(t *testing.T) {
	for ago, want := range map[time.Duration]string{50 * time.Millisecond: "", 900 * time.Millisecond: "", 1100 * time.Millisecond: AcceptStalled} {
		f := healthyFacts(t0)
		f.Calls = map[string]Call{"list_containers": {LastOK: t0.Add(-10 * time.Millisecond), LastOKDuration: 1200 * time.Millisecond}}
		f.Probe = Probe{At: t0.Add(-1200 * time.Millisecond), FailedSince: t0.Add(-1200 * time.Millisecond), Stage: StageSettings, Cause: CauseTimeout}
		f.Evidence.Queue = &Queue{At: t0.Add(-50 * time.Millisecond), Listening: true, Length: 1, Limit: 128, WaitingSince: t0.Add(-1200 * time.Millisecond)}
		f.Evidence.Process = &Process{At: t0.Add(-50 * time.Millisecond), PID: 1, Alive: true, Start: t0.Add(-time.Hour), OpenFDs: 20, MaxFDs: 1024, Threads: map[string]int{"T": 9}, StoppedAt: t0.Add(-ago)}
		if ago > time.Second {
			f.Evidence.Process.Threads = map[string]int{"S": 9}
		}
		named(t, fmt.Sprintf("stopped %s ago", ago), &f, want)
	}
}

// TestThawedHopAccepts: until the accept queue of a hop has been looked at a second after
// the hop was last found stopped or frozen, it proves nothing.
func TestThawedHopAccepts(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		stopped, queue time.Duration // ago
		frozen         bool
		want           string
	}{
		{3000 * ms, 2500 * ms, false, ""}, {3000 * ms, 2500 * ms, true, ""}, {3000 * ms, 100 * ms, false, AcceptStalled},
		{3000 * ms, 100 * ms, true, AcceptStalled},
	} {
		f := behindDocker(t0)
		h := &f.Evidence.Hops[0]
		h.fails(StageSettings, CauseTimeout, 2900*ms)
		h.Queue = &Queue{At: t0.Add(-tt.queue), Listening: true, Inode: 7, Length: 2, Limit: 4096, WaitingSince: t0.Add(-5 * time.Second)}
		if h.Process.StoppedAt = t0.Add(-tt.stopped); tt.frozen {
			h.Process.StoppedAt, h.Cgroup.FrozenAt = time.Time{}, t0.Add(-tt.stopped)
		}
		named(t, fmt.Sprintf("%+v", tt), &f, tt.want)
	}
}

// TestAnswersAgainBeforeItAccepts: the first list after a freeze is answered before
// the accept queue is looked at again.
func TestAnswersAgainBeforeItAccepts(t *testing.T) {
	for _, phase := range []Phase{PhaseListContainers, PhaseInspect} {
		for held, want := range map[time.Duration]string{4 * time.Second: "", 20 * time.Millisecond: AcceptStalled} {
			f := healthyFacts(t0)
			answered := t0.Add(-time.Millisecond)
			f.Calls = map[string]Call{"list_podsandbox": {LastOK: answered, LastOKDuration: held}}
			f.Relist.InFlight = &InFlight{Start: answered.Add(-held), Phase: phase, PhaseStart: answered}
			f.Probe = Probe{At: t0.Add(-4500 * time.Millisecond), FailedSince: t0.Add(-4500 * time.Millisecond), Stage: StageSettings, Cause: CauseTimeout}
			f.Evidence.Queue = &Queue{At: t0.Add(-100 * time.Millisecond), Listening: true, Length: 1, Limit: 128, WaitingSince: t0.Add(-4 * time.Second)}
			f.Evidence.Process = &Process{At: t0.Add(-100 * time.Millisecond), PID: 1, Alive: true, Start: t0.Add(-time.Hour), OpenFDs: 20, MaxFDs: 1024}
			named(t, fmt.Sprintf("%s, the list before it took %s", phase, held), &f, want)
		}
	}
}

// TestAcceptWithQueueUnseen: where the queue has not been read since the probe, one
// that is late proves nothing.
func TestAcceptWithQueueUnseen(t *testing.T) {
	for _, queue := range []*Queue{nil, {At: t0.Add(-10 * time.Second), Listening: true, Limit: 128}} {
		for waits, want := range map[time.Duration]string{3 * time.Second: "", 5 * time.Second: AcceptStalled} {
			f := answering()
			f.Probe = Probe{At: t0.Add(-waits), FailedSince: t0.Add(-waits), Stage: StageSettings, Cause: CauseTimeout}
			f.Evidence.Queue = queue
			named(t, fmt.Sprintf("queue %+v, for %s", queue, waits), &f, want)
		}
	}
}

// TestNewListenerIsLookedAtFirst: a socket that has just come to the path may be
// another process's; AcceptStalled would speak of the runtime.
func TestNewListenerIsLookedAtFirst(t *testing.T) {
	for since, want := range map[time.Duration]string{time.Second: "", 4 * time.Second: AcceptStalled} {
		// None is known where plegd may not look into other processes' descriptors and
		// no connection has told since.
		for _, known := range []*Listener{nil, {At: t0.Add(-since - time.Second), Inode: 7, PID: 1}} {
			f := answering()
			f.Probe = Probe{At: t0, FailedSince: t0.Add(-time.Second), Stage: StageSettings, Cause: CauseTimeout}
			f.Evidence.Queue = &Queue{At: t0, Listening: true, Inode: 8, ListeningSince: t0.Add(-since), Length: 1, Limit: 128}
			f.Evidence.Listener = known
			named(t, fmt.Sprintf("a new socket for %s, known %+v", since, known), &f, want)
		}
	}
}

// TestStatusFailsFirst: Status may fail for want of a descriptor before the runtime's
// descriptors have been counted.
func TestStatusFailsFirst(t *testing.T) {
	const ms = time.Millisecond
	for seen, want := range map[time.Duration]string{400 * ms: "", 50 * ms: RuntimeNotReady} {
		f := healthyFacts(t0)
		f.Calls = map[string]Call{opStatus: {LastFailed: t0.Add(-100 * ms)}, "list_containers": {LastOK: t0.Add(-20 * ms)}}
		f.Status.LastErr = &CallError{Operation: opStatus, Code: "Unknown", Message: "open /var/lib/containerd/uuid: too many open files: unknown"}
		f.Evidence.Process = &Process{At: t0.Add(-seen), PID: 1, Alive: true, Start: t0.Add(-time.Hour), OpenFDs: 20, MaxFDs: 1024}
		named(t, fmt.Sprintf("looked at %s ago", seen), &f, want)
	}
}

// TestStrangerIsGone: a probe's result from before another socket was at the path is no
// evidence about that socket.
func TestStrangerIsGone(t *testing.T) {
	met := t0.Add(-time.Second)
	still := Queue{At: t0, Listening: true, Inode: 7, Length: 1, Limit: 128, ListeningSince: t0.Add(-5 * time.Second)}
	for _, tt := range []struct {
		name  string
		cause Cause
		queue Queue
		want  string
	}{
		{"it still listens", CauseProtocol, still, RuntimeSocketUnlinked},
		{"nobody listens since", CauseProtocol, Queue{At: t0}, ""},
		{"another one listens since", CauseProtocol, Queue{At: t0, Listening: true, Inode: 8, ListeningSince: t0.Add(-100 * time.Millisecond)}, ""},
		{"it still accepts nobody", CauseTimeout, still, AcceptStalled},
		{"what accepted nobody is gone", CauseTimeout, Queue{At: t0}, ""},
		{"another one accepts since", CauseTimeout, Queue{At: t0, Listening: true, Inode: 8, ListeningSince: t0.Add(-100 * time.Millisecond)}, ""},
	} {
		f := answering()
		f.Probe = Probe{At: met, Stage: StageSettings, Cause: tt.cause, FailedSince: t0.Add(-4 * time.Second), Failures: 3}
		f.Evidence.Queue = &tt.queue
		named(t, tt.name, &f, tt.want)
	}
}

// TestStartsBeforeItAnswers: a runtime that was just started and accepts takes its
// time until it answers; one that takes long is unresponsive.
func TestStartsBeforeItAnswers(t *testing.T) {
	for age, want := range map[time.Duration]string{9 * time.Second: RuntimeStarting, time.Minute: RuntimeUnresponsive} {
		f := healthyFacts(t0)
		failing(&f, 6, "Unavailable")
		f.Relist.InFlight = &InFlight{Start: t0.Add(-3 * time.Second), Phase: PhaseListPodSandbox, PhaseStart: t0.Add(-3 * time.Second)}
		lastAnswer := t0.Add(-age - time.Second)
		f.Calls = map[string]Call{
			"list_podsandbox": {LastOK: lastAnswer},
			"version":         {LastOK: lastAnswer, InFlightSince: t0.Add(-3 * time.Second)},
		}
		f.Status.LastGood = lastAnswer
		f.Evidence.Process = &Process{At: t0, PID: 1, Alive: true, Start: t0.Add(-age), OpenFDs: 20, MaxFDs: 1024}
		f.Evidence.Queue = &Queue{At: t0, Listening: true, Limit: 128}
		named(t, fmt.Sprintf("started %s ago", age), &f, want)
	}
}

// TestVersionLastToBeAnswered: after everything has hung a list is answered a moment
// before Version is.
func TestVersionLastToBeAnswered(t *testing.T) {
	for took, want := range map[time.Duration]string{7 * time.Second: "", 20 * time.Millisecond: NodeStatusStalled} {
		f := healthyFacts(t0)
		answered := t0.Add(-10 * time.Millisecond)
		f.Calls = map[string]Call{string(PhaseListContainers): {LastOK: answered, LastOKDuration: took}}
		f.Relist.Lists = append(f.Relist.Lists, took)
		f.Version = VersionCheck{HangsSince: t0.Add(-6800 * time.Millisecond)}
		named(t, fmt.Sprintf("the list took %s", took), &f, want)
	}
}
