package health

import (
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// TestRows checks the active reasons, the primary one first, and their evidence where one fact
// decides: a sample that is older than another one, a number just below its limit.
func TestRows(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	const lives = "is alive and does not listen"
	queue := func(length int, waits time.Duration) *facts.Queue {
		return &facts.Queue{At: t0, Listening: true, Inode: 7, ListeningSince: ago(time.Hour), Length: length, Limit: 128, WaitingSince: ago(waits)}
	}
	unseen, old := &facts.Queue{At: ago(1200 * ms)}, queue(3, 1500*ms)
	old.At = unseen.At
	fds := func(open, most int, dead bool) *facts.Process {
		return &facts.Process{At: t0, PID: 1, Alive: !dead, Start: ago(time.Hour), OpenFDs: open, MaxFDs: most, Threads: map[string]int{"S": 9}}
	}
	full, some := fds(1024, 1024, false), fds(20, 1024, false)
	full.ExhaustedAt = t0
	met := func(stage facts.Stage, cause facts.Cause, ago time.Duration) facts.Probe {
		return facts.Probe{At: t0.Add(-min(ago, s)), Stage: stage, Cause: cause, FailedSince: t0.Add(-ago), Detail: "detail"}
	}
	metFull, silent, none := met(facts.StageConnect, facts.CauseQueueFull, s), met(facts.StageSettings, facts.CauseTimeout, s), facts.Probe{}
	is := func(f *facts.Facts, p facts.Probe, q *facts.Queue, r *facts.Process) {
		f.Probe, f.Evidence.Queue, f.Evidence.Process = p, q, r
	}
	another := func(f *facts.Facts, q *facts.Queue, r *facts.Process) { // at the path
		is(f, none, q, r)
		f.Dial = facts.Dial{At: ago(time.Hour), Up: true}
		f.Evidence.Listener = &facts.Listener{At: t0, Inode: 7, PID: 66, Comm: "python3", Since: ago(3 * s)}
	}
	stops := func(f *facts.Facts, cause facts.Cause) *facts.Process {
		noConnection(f, cause)
		f.Evidence.Process = fds(20, 1024, false)
		return f.Evidence.Process
	}
	unlinked := func(f *facts.Facts) *facts.Evidence {
		stops(f, facts.CauseMissing)
		f.Evidence.Queue, f.Evidence.Listener = queue(0, 0), &facts.Listener{At: t0, Inode: 7, PID: 1, Since: ago(time.Hour)}
		return &f.Evidence
	}
	fresh := func(f *facts.Facts, since time.Duration, known *facts.Listener) { // a socket since then, in whose queue a dial waits
		is(f, met(facts.StageSettings, facts.CauseTimeout, s), queue(1, s), nil)
		f.Probe.At, f.Evidence.Queue.ListeningSince, f.Evidence.Listener = t0, ago(since), known
	}
	late := func(f *facts.Facts) { // waits for the process to be sampled later than --probe-timeout
		is(f, met(facts.StageSettings, facts.CauseTimeout, 3*s), queue(1, 3*s), fds(20, 1024, false))
		f.Evidence.Process.At = ago(s)
	}
	strange := func(f *facts.Facts, cause facts.Cause, q *facts.Queue, known *facts.Listener) { // for 4 s
		is(f, met(facts.StageSettings, cause, 4*s), q, nil)
		f.Evidence.Listener = known
	}
	// containerd notices up to a second late that it has descriptors again, and then works its queue off. The
	// times are ages: of the last sample without any, 0 for none now, and of the queue's last fall, 0 for never.
	again := func(f *facts.Facts, exhausted, fell, waiting time.Duration, length int) {
		p, q := fds(20, 1024, false), queue(length, waiting)
		if p.ExhaustedAt = ago(exhausted); exhausted == 0 {
			p = full
		}
		if fell > 0 {
			q.FellAt = ago(fell)
		}
		is(f, waits(5*s), q, p)
	}
	inspects := func(f *facts.Facts, since time.Duration, pods, remaining int) {
		f.Relist.InFlight = &facts.InFlight{Start: ago(since), Phase: facts.PhaseInspect, PhaseStart: ago(since), Pods: pods}
		f.Modelled.InspectingSince, f.Modelled.Inspecting = ago(since), remaining
	}
	slow := func(f *facts.Facts, inspections time.Duration, n int) {
		f.Relist.Last.ListContainers, f.Relist.Last.Serial, f.Relist.Last.Inspected = 20*s, 20*s+inspections, n
	}
	large := func(f *facts.Facts, op facts.Phase, bytes int, took time.Duration) { // lists on a node whose CPUs are busy
		call := f.Calls[string(op)]
		call.Bytes = bytes
		f.Calls[string(op)] = call
		f.Relist.Lists = []time.Duration{took, took}
		f.Evidence.Node = &facts.Node{At: t0, CPUSome: 90, CPUIdle: 0.01}
	}
	for _, tt := range []struct {
		name, want, has, hasNot string
		change                  func(*facts.Facts)
	}{
		{"the queue is full, and nothing is held", AcceptStalled, "connect fails: queue_full", lives, func(f *facts.Facts) { stops(f, facts.CauseQueueFull) }},
		{"just full", AcceptStalled, "accept queue 129 of 128", "fds", func(f *facts.Facts) { is(f, none, queue(129, 100*ms), fds(20, -1, false)) }},
		{"just full, its descriptors not counted since", "", "", "", func(f *facts.Facts) {
			is(f, none, queue(129, 100*ms), serving(900*ms))
		}},
		{"nor after 2 s", AcceptStalled, "fds 20 of 1024", "", func(f *facts.Facts) { is(f, none, queue(129, 2*s), serving(3*s)) }},
		{"full for a probe, its descriptors not counted since", "", "", "", func(f *facts.Facts) {
			is(f, metFull, &facts.Queue{At: t0}, serving(1200*ms))
		}},
		{"full when it was probed", "", "", "", func(f *facts.Facts) { is(f, metFull, queue(3, 100*ms), nil) }},
		{"full for a probe, the queue not read since", AcceptStalled, "", "fds", func(f *facts.Facts) { is(f, metFull, old, fds(20, 1024, true)) }},
		{"full for a probe, the queue is not seen", AcceptStalled, "", "accept queue", func(f *facts.Facts) { is(f, metFull, &facts.Queue{At: t0}, nil) }},
		{"another process's is full", RuntimeSocketTakenOver, "", "accept queue", func(f *facts.Facts) { another(f, queue(129, 5*s), some) }},
		{"no descriptor, the queue cannot be read", AcceptFDExhausted, "fds 1024 of 1024", "no descriptor was free", func(f *facts.Facts) { is(f, silent, nil, full) }},
		{"no descriptor, the queue is not seen", AcceptFDExhausted, "", "", func(f *facts.Facts) { is(f, silent, unseen, full) }},
		{"no descriptor, nobody waits", FDsRunningOut, "", "", func(f *facts.Facts) { is(f, none, nil, full) }},
		{"no descriptor, and the probe was accepted", FDsRunningOut, "", "", func(f *facts.Facts) { is(f, silent, queue(0, 0), full) }},
		{"no descriptor, another process's socket", RuntimeSocketTakenOver + " " + FDsRunningOut, "", "", func(f *facts.Facts) { another(f, queue(3, 100*ms), full) }},
		{"it had none, and has ended", RuntimeNotListening, "", "", func(f *facts.Facts) {
			p := stops(f, facts.CauseRefused)
			p.Alive, p.ExhaustedAt, f.Probe = false, ago(s), waits(5*s)
		}},
		{"no call is answered since", "", "", "", func(f *facts.Facts) {
			is(f, none, queue(1, 3*s), nil)
			f.Calls = map[string]facts.Call{opVersion: {LastOK: ago(5 * s)}}
		}},
		{"a list hangs", RuntimeListStall, "", "", func(f *facts.Facts) {
			f.Relist.InFlight, f.Evidence.Queue = &facts.InFlight{Start: ago(3 * s), Phase: facts.PhaseListContainers, PhaseStart: ago(3 * s)}, queue(1, 3*s)
		}},
		{"it accepts, and is silent", "", "", "", func(f *facts.Facts) { is(f, waits(5*s), queue(0, 0), nil) }},
		{"its descriptors cannot be counted", AcceptStalled, "accept queue 1 of 128; threads asleep; last answer", "", func(f *facts.Facts) { is(f, none, queue(1, 3*s), fds(-1, 1024, false)) }},
		{"a dial waits", "", "", "", func(f *facts.Facts) { is(f, waits(3*s), nil, nil) }},
		{"for longer", AcceptStalled, "", "", func(f *facts.Facts) { is(f, waits(5*s), nil, nil) }},
		{"a dial waits, the queue not read since", "", "", "", func(f *facts.Facts) {
			is(f, waits(3*s), &facts.Queue{At: ago(10 * s), Listening: true, Limit: 128}, nil)
		}},
		{"for longer", AcceptStalled, "", "", func(f *facts.Facts) {
			is(f, waits(5*s), &facts.Queue{At: ago(10 * s), Listening: true, Limit: 128}, nil)
		}},
		{"a new socket, whose process is not known", "", "", "", func(f *facts.Facts) { fresh(f, s, nil) }},
		{"nor after 4 s: plegd may not look", AcceptStalled, "", "", func(f *facts.Facts) { fresh(f, 4*s, nil) }},
		{"a new socket, another one is known", "", "", "", func(f *facts.Facts) { fresh(f, s, &facts.Listener{At: ago(2 * s), Inode: 8, PID: 1}) }},
		{"nor after 4 s", AcceptStalled, "", "", func(f *facts.Facts) { fresh(f, 4*s, &facts.Listener{At: ago(5 * s), Inode: 8, PID: 1}) }},
		{"a new socket, seen before as a listener", AcceptStalled, "", "", func(f *facts.Facts) { fresh(f, s, &facts.Listener{At: ago(2 * s), Inode: 7}) }},
		{"a new socket, another one is found since", AcceptStalled, "", "", func(f *facts.Facts) { fresh(f, s, &facts.Listener{At: t0, Inode: 8}) }},
		{"none is free", AcceptFDExhausted, "", "", func(f *facts.Facts) { again(f, 0, 0, 5*s, 3) }},
		{"some are free again, and it has yet to notice", AcceptFDExhausted, "", "", func(f *facts.Facts) { again(f, 900*ms, 0, 5*s, 3) }},
		{"the same with the queue full", AcceptFDExhausted + " " + AcceptStalled, "", "", func(f *facts.Facts) { again(f, 900*ms, 0, 5*s, 129) }},
		{"it works a full queue off", AcceptFDExhausted + " " + AcceptStalled, "", "", func(f *facts.Facts) { again(f, 900*ms, 200*ms, 200*ms, 129) }},
		{"it works its queue off", "", "", "", func(f *facts.Facts) { again(f, 900*ms, 200*ms, 200*ms, 3) }},
		{"it began to, and stopped", AcceptFDExhausted, "", "", func(f *facts.Facts) { again(f, 2900*ms, 2200*ms, 2200*ms, 3) }},
		{"it ought to have noticed long since", AcceptStalled, "", "", func(f *facts.Facts) { again(f, 4*s, 0, 5*s, 3) }},
		{"it has, slowly", "", "", "", func(f *facts.Facts) { again(f, 4*s, 300*ms, 300*ms, 3) }},
		{"the queue is empty", "", "", "", func(f *facts.Facts) { again(f, 900*ms, 200*ms, 0, 0) }},
		{"the process was sampled before the dial's limit", "", "", "", func(f *facts.Facts) { f.Config.ProbeTimeout = 5 * s; late(f) }},
		{"and after a shorter one", AcceptStalled, "", "", func(f *facts.Facts) { f.Config.ProbeTimeout = s; late(f) }},
		{"Status needs one", AcceptFDExhausted, "Status of containerd 1.7.24 needs a descriptor", "no descriptor was free", func(f *facts.Facts) { exhausted(f, "1.7.24") }},
		{"a stranger for a moment", "", "", "", func(f *facts.Facts) { is(f, met(facts.StageSettings, facts.CauseProtocol, 1900*ms), queue(0, 0), nil) }},
		{"a stranger listens", RuntimeSocketUnlinked, "", "", func(f *facts.Facts) { strange(f, facts.CauseProtocol, queue(1, 0), nil) }},
		{"another gRPC server listens", RuntimeSocketUnlinked, "", "", func(f *facts.Facts) { strange(f, facts.CauseUnimplemented, queue(1, 0), nil) }},
		{"the stranger is known", RuntimeSocketUnlinked, "", "", func(f *facts.Facts) {
			strange(f, facts.CauseProtocol, queue(1, 0), &facts.Listener{Inode: 7, Since: ago(5 * s)})
		}},
		{"its queue cannot be read", RuntimeSocketUnlinked, "", "", func(f *facts.Facts) {
			strange(f, facts.CauseProtocol, nil, &facts.Listener{Inode: 7, Since: ago(5 * s)})
		}},
		{"another socket is at the path since", "", "", "", func(f *facts.Facts) {
			strange(f, facts.CauseProtocol, queue(1, 0), &facts.Listener{Inode: 8, Since: ago(5 * s)})
		}},
		{"another process is at the path since", "", "", "", func(f *facts.Facts) {
			strange(f, facts.CauseProtocol, queue(1, 0), &facts.Listener{Inode: 7, Since: ago(100 * ms)})
		}},
		{"nobody listens since", "", "", "", func(f *facts.Facts) { strange(f, facts.CauseProtocol, &facts.Queue{At: t0}, nil) }},
		{"another one listens since", "", "", "", func(f *facts.Facts) {
			strange(f, facts.CauseProtocol, &facts.Queue{At: t0, Listening: true, Inode: 8, ListeningSince: ago(100 * ms)}, nil)
		}},
		{"a stranger accepts nobody", AcceptStalled, "", "", func(f *facts.Facts) { strange(f, facts.CauseTimeout, queue(1, 0), nil) }},
		{"what accepted nobody is gone", "", "", "", func(f *facts.Facts) { strange(f, facts.CauseTimeout, &facts.Queue{At: t0}, nil) }},
		{"what accepted nobody, another one accepts", "", "", "", func(f *facts.Facts) {
			strange(f, facts.CauseTimeout, &facts.Queue{At: t0, Listening: true, Inode: 8, ListeningSince: ago(100 * ms)}, nil)
		}},

		{"a stop that hangs", RuntimeNotListening, lives, "", func(f *facts.Facts) { stops(f, facts.CauseRefused) }},
		{"soon after its start", RuntimeNotListening, lives, "", func(f *facts.Facts) { stops(f, facts.CauseRefused).Start = ago(20 * s) }},
		{"before plegd began", RuntimeNotListening, lives, "", func(f *facts.Facts) { stops(f, facts.CauseRefused); f.Calls = nil }},
		{"a start", RuntimeStarting + " " + RuntimeNotListening, "", lives, func(f *facts.Facts) { stops(f, facts.CauseRefused).Start, f.Calls = ago(20*s), nil }},
		{"a start on a full file system", RuntimeStorageFull + " " + RuntimeNotListening + " " + RuntimeStarting, "", lives, func(f *facts.Facts) {
			stops(f, facts.CauseRefused).Start, f.Calls = ago(20*s), nil
			storageOf(facts.FileSystem{Bytes: 1 << 40, FreeBytes: 50 << 20})(f)
		}},
		{"a recovery on a read-only one", RuntimeStorageFull + " " + RuntimeStarting, "read-only", "", func(f *facts.Facts) {
			failing(f, 20, "Unknown")
			f.Relist.Last.Err.NotInitialized = true
			storageOf(facts.FileSystem{Bytes: 1 << 40, FreeBytes: 1 << 39, ReadOnly: true})(f)
		}},
		{"it has just begun", RuntimeNotListening, "", lives, func(f *facts.Facts) { stops(f, facts.CauseRefused); f.Relist.Failures = 1 }},

		{"it listens, the file is gone", RuntimeSocketUnlinked, "its socket's file is gone", lives, func(f *facts.Facts) { unlinked(f) }},
		{"another socket", RuntimeSocketMissing, "", "", func(f *facts.Facts) { unlinked(f).Queue.Inode = 8 }},
		{"of another process", RuntimeSocketMissing, "", "", func(f *facts.Facts) { unlinked(f).Listener.PID = 2 }},
		{"an old sample of it", RuntimeSocketMissing, "", "", func(f *facts.Facts) { unlinked(f).Process.At = ago(6 * s) }},
		{"an old sample of the queue", RuntimeSocketMissing, "", "", func(f *facts.Facts) { unlinked(f).Queue.At = ago(6 * s) }},

		{"another one's listener, which has answered", RuntimeUnresponsive, "", "", func(f *facts.Facts) {
			*f = inherited("python3")
			f.Calls[opVersion] = facts.Call{LastOK: ago(5 * s), InFlightSince: ago(4 * s)}
		}},
		{"its own", RuntimeStarting + " " + RuntimeUnresponsive, "", "", func(f *facts.Facts) { *f = inherited("python3"); f.Evidence.Queue.ListeningSince = ago(9 * s) }},
		{"no call hangs", "", "", "", func(f *facts.Facts) { *f = inherited("python3"); f.Relist.InFlight = nil }},
		{"a list alone hangs so far", Unknown, "", "", func(f *facts.Facts) { *f = inherited("python3"); f.Calls[opVersion] = facts.Call{LastOK: ago(20 * s)} }},

		{"each Status of the kubelet's fails", RuntimeNotReady, "has failed for 9.0s, by its metrics", "", func(f *facts.Facts) {
			f.Evidence.Kubelet = &facts.Kubelet{At: t0, OK: true, Seen: true, AnsweredAt: t0, Status: &facts.StartCalls{Errors: 2, Since: ago(9 * s)}}
		}},
		{"one of them has failed", "", "", "", func(f *facts.Facts) {
			f.Evidence.Kubelet = &facts.Kubelet{At: t0, OK: true, Seen: true, AnsweredAt: t0, Status: &facts.StartCalls{Errors: 1, Since: ago(9 * s)}}
		}},

		{"3 pods", RelistSlow, "the last relist's calls take 31s one after another (3 pods inspected)", "", func(f *facts.Facts) { slow(f, 11*s, 3) }},
		{"49 pods", "", "", "", func(f *facts.Facts) { slow(f, 9*s, 49); f.Modelled.Estimated = ago(90 * s) }},
		{"50 pods", RelistSlow, "(50 pods inspected)", "1.36", func(f *facts.Facts) { slow(f, 0, 50) }},
		{"50 pods, and the kubelet may be one before 1.36", RelistSlow, "and was last seen 1m30s ago", "", func(f *facts.Facts) { slow(f, 0, 50); f.Modelled.Estimated = ago(90 * s) }},
		{"50 quick pods", "", "", "", func(f *facts.Facts) { slow(f, -16*s, 50) }},
		{"50 pods under way", RelistSlow, "0 of 50 pods inspected in 5.0s", "", func(f *facts.Facts) { inspects(f, 5*s, 50, 0) }},
		{"49 pods under way", "", "", "", func(f *facts.Facts) { inspects(f, 5*s, 49, 49) }},
		{"the kubelet has 50 to go", RelistSlow, "has been inspecting for 5.0s, with 50 pods to go", "", func(f *facts.Facts) { inspects(f, 5*s, 0, 50) }},
		{"they have just begun", "", "", "", func(f *facts.Facts) { inspects(f, 4*s, 50, 50) }},
		{"a large list on a busy node", TooManyContainers, "", "", func(f *facts.Facts) { large(f, facts.PhaseListContainers, 14<<20, s) }},
		{"slower, as its size explains", TooManyContainers + " " + RelistSlow, "", "", func(f *facts.Facts) { large(f, facts.PhaseListContainers, 14<<20, 4*s) }},
		{"a small one would be slow, too", NodePressure + " " + RelistSlow + " " + TooManyContainers, "", "", func(f *facts.Facts) { large(f, facts.PhaseListContainers, 14<<20, 5*s) }},
		{"large, and few inspections take long", RelistSlow + " " + TooManyContainers, "", "", func(f *facts.Facts) {
			large(f, facts.PhaseListContainers, 14<<20, s)
			slow(f, 11*s, 3)
		}},
		{"a list of sandboxes that is far from a limit", "", "", "", func(f *facts.Facts) { large(f, facts.PhaseListPodSandbox, 6<<20, 1700*ms) }},
		{"the same time for a small one", NodePressure, "", "", func(f *facts.Facts) { large(f, facts.PhaseListPodSandbox, 600<<10, 1700*ms) }},
		{"it has inspected for long", RelistSlow, "has been inspecting for 11s", "to go", func(f *facts.Facts) { inspects(f, 11*s, 0, 0) }},
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
