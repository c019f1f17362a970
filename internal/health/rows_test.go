package health

import (
	"strings"
	"testing"
	"time"
)

// TestRows: what is active, the primary reason first, and what the evidence has and has not, where one fact
// decides: a sample that is older than another one, a number just below its limit.
func TestRows(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	const lives = "is alive and does not listen"
	queue := func(length int, waits time.Duration) *Queue {
		return &Queue{At: t0, Listening: true, Inode: 7, ListeningSince: ago(time.Hour), Length: length, Limit: 128, WaitingSince: ago(waits)}
	}
	unseen, old := &Queue{At: ago(1200 * ms)}, queue(3, 1500*ms)
	old.At = unseen.At
	fds := func(open, most int, dead bool) *Process {
		return &Process{At: t0, PID: 1, Alive: !dead, Start: ago(time.Hour), OpenFDs: open, MaxFDs: most}
	}
	full, some := fds(1024, 1024, false), fds(20, 1024, false)
	met := func(stage Stage, cause Cause, ago time.Duration) Probe {
		return Probe{At: t0.Add(-min(ago, s)), Stage: stage, Cause: cause, FailedSince: t0.Add(-ago), Detail: "detail"}
	}
	metFull, silent, none := met(StageConnect, CauseQueueFull, s), met(StageSettings, CauseTimeout, s), Probe{}
	is := func(p Probe, q *Queue, r *Process) func(*Facts) {
		return func(f *Facts) { f.Probe, f.Evidence.Queue, f.Evidence.Process = p, q, r }
	}
	another := func(q *Queue, r *Process) func(*Facts) {
		return func(f *Facts) {
			is(none, q, r)(f)
			f.Dial = Dial{At: ago(time.Hour), Up: true}
			f.Evidence.Listener = &Listener{At: t0, Inode: 7, PID: 66, Comm: "python3", Since: ago(3 * s)}
		}
	}
	stops := func(cause Cause, change func(*Facts, *Process)) func(*Facts) {
		return func(f *Facts) {
			noConnection(f, cause)
			f.Evidence.Process = fds(20, 1024, false)
			change(f, f.Evidence.Process)
		}
	}
	unlinked := func(change func(*Evidence)) func(*Facts) {
		return stops(CauseMissing, func(f *Facts, _ *Process) {
			f.Evidence.Queue = queue(0, 0)
			f.Evidence.Listener = &Listener{At: t0, Inode: 7, PID: 1, Since: ago(time.Hour)}
			change(&f.Evidence)
		})
	}
	under := func(phase Phase, since time.Duration, pods, remaining int) func(*Facts) {
		return func(f *Facts) {
			f.Relist.InFlight = &InFlight{Start: ago(since), Phase: phase, PhaseStart: ago(since), Pods: pods}
			if f.Evidence.Queue = queue(1, 3*s); phase == PhaseInspect {
				f.Evidence.Queue, f.Modelled.InspectingSince, f.Modelled.Inspecting = nil, ago(since), remaining
			}
		}
	}
	slow := func(inspections time.Duration, n int, before136 time.Time) func(*Facts) {
		return func(f *Facts) {
			f.Relist.Last.ListContainers, f.Relist.Last.Serial, f.Relist.Last.Inspected = 20*s, 20*s+inspections, n
			f.Modelled.LastSeenBefore136 = before136
		}
	}
	never := time.Time{}
	keeps := func(change func(*Facts)) func(*Facts) { return func(f *Facts) { *f = inherited("python3"); change(f) } }
	for _, tt := range []struct {
		name, want, has, hasNot string
		change                  func(*Facts)
	}{
		{"the queue is full, and nothing is held", AcceptStalled, "connect fails: queue_full", lives, stops(CauseQueueFull, func(*Facts, *Process) {})},
		{"just full", AcceptStalled, "accept queue 129 of 128", "fds", is(none, queue(129, 100*ms), fds(20, -1, false))},
		{"full when it was probed", "", "", "", is(metFull, queue(3, 100*ms), nil)},
		{"full for a probe, the queue not read since", AcceptStalled, "", "fds", is(metFull, old, fds(20, 1024, true))},
		{"full for a probe, the queue is not seen", AcceptStalled, "", "accept queue", is(metFull, &Queue{At: t0}, nil)},
		{"another process's is full", RuntimeSocketTakenOver, "", "accept queue", another(queue(129, 5*s), some)},
		{"no descriptor, the queue cannot be read", AcceptFDExhausted, "fds 1024 of 1024", "no descriptor was free", is(silent, nil, full)},
		{"no descriptor, the queue is not seen", AcceptFDExhausted, "", "", is(silent, unseen, full)},
		{"no descriptor, nobody waits", FDsRunningOut, "", "", is(none, nil, full)},
		{"no descriptor, and the probe was accepted", FDsRunningOut, "", "", is(silent, queue(0, 0), full)},
		{"no descriptor, another process's socket", RuntimeSocketTakenOver + " " + FDsRunningOut, "", "", another(queue(3, 100*ms), full)},
		{"it had none, and has ended", RuntimeNotListening, "", "", stops(CauseRefused, func(f *Facts, p *Process) {
			p.Alive, p.ExhaustedAt, f.Probe = false, ago(s), waits(5*s)
		})},
		{"no call is answered since", "", "", "", func(f *Facts) {
			is(none, queue(1, 3*s), nil)(f)
			f.Calls = map[string]Call{opVersion: {LastOK: ago(5 * s)}}
		}},
		{"lists fail", "", "", "", func(f *Facts) { failing(f, 1, "Internal"); f.Evidence.Queue = queue(1, 3*s) }},
		{"a list hangs", RuntimeListStall, "", "", under(PhaseListContainers, 3*s, 0, 0)},
		{"it hangs up on each", "", "", "", is(met(StageSettings, CauseClosed, 5*s), nil, nil)},
		{"it accepts, and Version hangs", "", "", "", is(met(StageRPC, CauseTimeout, 5*s), nil, nil)},
		{"it accepts, and is silent", "", "", "", is(waits(5*s), queue(0, 0), nil)},
		{"its descriptors cannot be counted", AcceptStalled, "accept queue 1 of 128", "fds", is(none, queue(1, 3*s), fds(-1, 1024, false))},
		{"Status needs one", AcceptFDExhausted, "Status of containerd 1.7.24 needs a descriptor", "no descriptor was free", func(f *Facts) { exhausted(f, "1.7.24") }},
		{"a stranger for a moment", "", "", "", is(met(StageSettings, CauseProtocol, 1900*ms), queue(0, 0), nil)},
		{"a stranger", RuntimeSocketUnlinked, "", "", is(met(StageSettings, CauseProtocol, 2*s), queue(0, 0), nil)},

		{"a stop that hangs", RuntimeNotListening, lives, "", stops(CauseRefused, func(*Facts, *Process) {})},
		{"soon after its start", RuntimeNotListening, lives, "", stops(CauseRefused, func(_ *Facts, p *Process) { p.Start = ago(20 * s) })},
		{"before plegd began", RuntimeNotListening, lives, "", stops(CauseRefused, func(f *Facts, _ *Process) { f.Calls = nil })},
		{"a start", RuntimeStarting + " " + RuntimeNotListening, "", lives, stops(CauseRefused, func(f *Facts, p *Process) { p.Start, f.Calls = ago(20*s), nil })},
		{"it has just begun", RuntimeNotListening, "", lives, stops(CauseRefused, func(f *Facts, _ *Process) { f.Relist.Failures = 1 })},
		{"a start, not probed yet", RuntimeStarting + " " + RuntimeNotListening, "it does not listen yet", "", stops(CauseRefused, func(f *Facts, p *Process) {
			p.Start, f.Calls, f.Probe = ago(20*s), nil, none
		})},

		{"it listens, the file is gone", RuntimeSocketUnlinked, "its socket's file is gone", lives, unlinked(func(*Evidence) {})},
		{"another socket", RuntimeSocketMissing, "", "", unlinked(func(e *Evidence) { e.Queue.Inode = 8 })},
		{"of another process", RuntimeSocketMissing, "", "", unlinked(func(e *Evidence) { e.Listener.PID = 2 })},
		{"of one that has ended", RuntimeSocketMissing, "", "", unlinked(func(e *Evidence) { e.Process.Alive = false })},
		{"an old sample of it", RuntimeSocketMissing, "", "", unlinked(func(e *Evidence) { e.Process.At = ago(6 * s) })},
		{"an old sample of the listener", RuntimeSocketMissing, "", "", unlinked(func(e *Evidence) { e.Listener.At = ago(6 * s) })},
		{"an old sample of the queue", RuntimeSocketMissing, "", "", unlinked(func(e *Evidence) { e.Queue.At = ago(6 * s) })},
		{"the socket is not seen", RuntimeSocketMissing, "", "", unlinked(func(e *Evidence) { *e.Queue, e.Listener.Inode = Queue{At: t0}, 0 })},
		{"no probe failed", RuntimeSocketMissing, "", "", func(f *Facts) { unlinked(func(*Evidence) {})(f); f.Probe = Probe{At: t0, OK: true} }},

		{"another one's listener, which has answered", RuntimeUnresponsive, "", "", keeps(func(f *Facts) { f.Calls[opVersion] = Call{LastOK: ago(5 * s), InFlightSince: ago(4 * s)} })},
		{"its own", RuntimeStarting + " " + RuntimeUnresponsive, "", "", keeps(func(f *Facts) { f.Evidence.Queue.ListeningSince = ago(9 * s) })},
		{"that of one that has ended", RuntimeUnresponsive, "", "", keeps(func(f *Facts) { f.Evidence.Process.Alive = false })},
		{"nobody's", RuntimeStarting + " " + RuntimeUnresponsive, "", "", keeps(func(f *Facts) { f.Evidence.Queue = &Queue{At: t0} })},
		{"no call hangs", "", "", "", keeps(func(f *Facts) { f.Relist.InFlight = nil })},
		{"a list alone hangs so far", Unknown, "", "", keeps(func(f *Facts) { f.Calls[opVersion] = Call{LastOK: ago(20 * s)} })},

		{"3 pods", RelistSlow, "the last relist's calls take 31s one after another (3 pods inspected)", "", slow(11*s, 3, never)},
		{"3 quick pods", "", "", "", slow(9*s, 3, never)},
		{"49 pods", "", "", "", slow(9*s, 49, ago(90*s))},
		{"50 pods", RelistSlow, "(50 pods inspected)", "1.36", slow(0, 50, never)},
		{"50 pods, and the kubelet may be one before 1.36", RelistSlow, "and was last seen 1m30s ago", "", slow(0, 50, ago(90*s))},
		{"50 quick pods", "", "", "", slow(-16*s, 50, never)},
		{"50 pods under way", RelistSlow, "0 of 50 pods inspected in 5.0s", "", under(PhaseInspect, 5*s, 50, 0)},
		{"49 pods under way", "", "", "", under(PhaseInspect, 5*s, 49, 49)},
		{"the kubelet has 50 to go", RelistSlow, "has been inspecting for 5.0s, with 50 pods to go", "", under(PhaseInspect, 5*s, 0, 50)},
		{"they have just begun", "", "", "", under(PhaseInspect, 4*s, 50, 50)},
		{"it has inspected for long", RelistSlow, "has been inspecting for 11s", "to go", under(PhaseInspect, 11*s, 0, 0)},
	} {
		f := answering()
		tt.change(&f)
		var active []string
		evidence := ""
		for _, a := range Judge(&f, t0, nil).Active {
			active, evidence = append(active, a.ID), evidence+strings.Join(a.Evidence, "; ")
		}
		if got := strings.Join(active, " "); got != tt.want || !strings.Contains(evidence, tt.has) || tt.hasNot != "" && strings.Contains(evidence, tt.hasNot) {
			t.Errorf("%s: %s, want %s with %q, not %q: %s", tt.name, got, tt.want, tt.has, tt.hasNot, evidence)
		}
	}
}
