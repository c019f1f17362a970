package health

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/must"
)

func ago(d time.Duration) time.Time { return t0.Add(-d) }

// noConnection makes connect fail with a cause for some seconds.
func noConnection(f *facts.Facts, cause facts.Cause) {
	failing(f, 5, "Unavailable")
	f.Endpoint.Path = "/run/c.sock"
	f.Dial = facts.Dial{At: t0, Cause: cause, Detail: string(cause)}
	f.Probe = facts.Probe{At: t0, Stage: facts.StageConnect, Cause: cause, Detail: string(cause), FailedSince: ago(5 * time.Second)}
	f.Calls = map[string]facts.Call{"version": {LastOK: ago(6 * time.Second)}}
}

// TestNext has cases in which another step would do nothing, or harm. "Start the runtime" is
// wrong where something stands at its path, and where a process that no longer serves lives.
func TestNext(t *testing.T) {
	old := func() *facts.Process {
		return &facts.Process{At: t0, PID: 812, Comm: "containerd", Alive: true, Start: ago(time.Hour), OpenFDs: -1}
	}
	held := func(cause facts.Cause) func(*facts.Facts) {
		return func(f *facts.Facts) {
			f.Endpoint.Path, f.Calls = "/run/c.sock", map[string]facts.Call{"version": {LastOK: t0}}
			f.Probe = facts.Probe{At: t0, Stage: facts.StageConnect, Cause: cause, Detail: "detail", FailedSince: ago(5 * time.Second)}
		}
	}
	frozen := func(path string) func(*facts.Facts) {
		return func(f *facts.Facts) {
			f.Relist.InFlight = &facts.InFlight{Start: ago(time.Second), Phase: facts.PhaseListPodSandbox, PhaseStart: ago(time.Second)}
			f.Evidence.Process = old()
			f.Evidence.Process.Unit = "containerd.service"
			f.Evidence.Cgroup = &facts.Cgroup{At: t0, Frozen: true, Path: path}
		}
	}
	for name, tt := range map[string]struct {
		change           func(*facts.Facts)
		reason, next, no string
		beside           string // must be active, too
	}{
		"the path is a directory":                                {func(f *facts.Facts) { noConnection(f, facts.CauseNotSocket) }, RuntimeNotListening, "Remove what stands at /run/c.sock", "", ""},
		"and the held connection answers":                        {held(facts.CauseNotSocket), RuntimeNotListening, "the runtime runs", "Start the runtime", ""},
		"another socket's file, and the held connection answers": {held(facts.CauseRefused), RuntimeNotListening, "the runtime runs", "Start the runtime", ""},
		"a stop that hangs, the socket's file is gone": {func(f *facts.Facts) {
			noConnection(f, facts.CauseMissing)
			f.Evidence.Process = old()
		}, RuntimeSocketMissing, "`kill -9 812`", "Start the runtime", ""},
		"a stop that hangs, the file is left": {func(f *facts.Facts) {
			noConnection(f, facts.CauseRefused)
			f.Evidence.Process = old()
		}, RuntimeNotListening, "`kill -9 812`", "Start the runtime", ""},
		"a process that is gone": {func(f *facts.Facts) {
			noConnection(f, facts.CauseRefused)
			f.Evidence.Process = old()
			f.Evidence.Process.Alive = false
		}, RuntimeNotListening, "Start the runtime; ", "`kill", ""},
		"one that was last seen before": {func(f *facts.Facts) {
			noConnection(f, facts.CauseRefused)
			f.Evidence.Process = old()
			f.Evidence.Process.At = ago(4 * time.Second)
		}, RuntimeNotListening, "Start the runtime; ", "`kill", ""},
		"the unit is frozen": {frozen("/system.slice/containerd.service"), RuntimeFrozen, "`systemctl thaw containerd.service`", "", ""},
		"a cgroup above it":  {frozen("/system.slice"), RuntimeFrozen, "`echo 0 >/sys/fs/cgroup/system.slice/cgroup.freeze`", "", ""},
		"a debugger stops it": {func(f *facts.Facts) {
			frozen("")(f)
			f.Evidence.Cgroup.Frozen, f.Evidence.Process.Threads = false, map[string]int{"T": 9}
			f.Evidence.Chain = &facts.Chain{At: t0, Links: []facts.Link{
				{Kind: facts.KindCall, Name: "every call"}, {Kind: facts.KindRuntime, PID: 812, Name: "containerd", State: facts.LinkTraced},
				{Kind: facts.KindProcess, PID: 50, Name: "gdb", State: facts.LinkAsleep},
			}}
		}, RuntimeFrozen, "pid 50 (gdb) traces pid 812", "", ""},
		"a debugger stops one thread of it": {func(f *facts.Facts) {
			*f = hangingList()
			f.Evidence.Process = old()
			f.Evidence.Chain = &facts.Chain{At: t0, Links: []facts.Link{
				{Kind: facts.KindCall, Name: facts.EveryCall}, {Kind: facts.KindRuntime, PID: 812, Name: "containerd", State: facts.LinkTraced},
				{Kind: facts.KindProcess, PID: 50, Name: "gdb", State: facts.LinkAsleep},
			}}
		}, RuntimeFrozen, "pid 50 (gdb) traces pid 812", "threads", ""},
		"a lock that another process holds is why it starts again and again": {func(f *facts.Facts) {
			noConnection(f, facts.CauseRefused)
			p := old()
			p.Start, p.Restarts = ago(8*time.Second), []time.Time{ago(28 * time.Second), ago(18 * time.Second), ago(8 * time.Second)}
			p.Lock = &facts.LockWait{HolderPID: 9, HolderComm: "ctr", File: "/var/lib/containerd/meta.db", Since: ago(7 * time.Second)}
			f.Evidence.Process = p
		}, RuntimeStorageLocked, "", "", RuntimeRestarting},
		"a process that is not known to be stuck": {func(f *facts.Facts) {
			*f = hangingList()
			f.Evidence.Chain = chainOf(facts.Link{Kind: facts.KindContainer, Name: "a/b/c"}, facts.Link{Kind: facts.KindShim, PID: 4711, State: facts.LinkUnknown, Evidence: "8 threads"})
			f.Evidence.Chain.Unknown = "what process 4711 waits for cannot be read"
		}, RuntimeListStall, "4711", "kill", ""},
		"memory pressure beside a full queue, and quick lists": {func(f *facts.Facts) {
			f.Calls = map[string]facts.Call{"list_containers": {LastOK: t0}}
			f.Evidence.Queue = &facts.Queue{At: t0, Listening: true, Length: 4097, Limit: 4096, WaitingSince: ago(5 * time.Second)}
			f.Evidence.Node = &facts.Node{At: t0, MemoryFull: 80, CPUIdle: -1}
		}, AcceptStalled, "", "", NodePressure},
	} {
		f := healthyFacts(t0)
		tt.change(&f)
		v := Judge(&f, t0, nil)
		if v.Reason != tt.reason || !strings.Contains(v.Next, tt.next) || tt.no != "" && strings.Contains(v.Next, tt.no) ||
			tt.beside != "" && v.ActiveReason(tt.beside) == nil {
			t.Errorf("%s: %s, %q; want %s with %q, not %q, beside %s", name, listed(v), v.Next, tt.reason, tt.next, tt.no, tt.beside)
		}
	}
}

// TestLockHolder: the process that took a lock is its holder only where it still has it.
func TestLockHolder(t *testing.T) {
	for want, lock := range map[string]facts.LockWait{
		"held by pid 9 (ctr)":                              {HolderPID: 9, HolderComm: "ctr"},
		"taken by pid 9, which does not have it any more":  {HolderPID: 9},
		"held by a process that /proc/locks does not name": {},
	} {
		f := healthyFacts(t0)
		noConnection(&f, facts.CauseRefused)
		lock.File = "/x/meta.db"
		lock.Since = ago(7 * time.Second)
		f.Evidence.Process = &facts.Process{At: t0, PID: 812, Comm: "containerd", Alive: true, Start: ago(8 * time.Second), OpenFDs: -1, Lock: &lock}
		v := Judge(&f, t0, nil)
		evidence := strings.Join(v.Active[0].Evidence, "\n")
		if v.Reason != RuntimeStorageLocked || !strings.Contains(evidence, "a lock on /x/meta.db, "+want+", for ") {
			t.Errorf("%s: %q, want %q", listed(v), evidence, want)
		}
	}
}

// inherited are the facts of a process that has a listener of before its start, and answers nothing.
func inherited(comm string) facts.Facts {
	f := healthyFacts(t0)
	f.Endpoint.Path = "/run/c.sock"
	at := ago(4 * time.Second)
	f.Relist.InFlight = &facts.InFlight{Start: at, Phase: facts.PhaseListPodSandbox, PhaseStart: at}
	f.Calls = map[string]facts.Call{"version": {LastOK: ago(20 * time.Second), InFlightSince: at}}
	f.Evidence.Process = &facts.Process{At: t0, PID: 90, Comm: comm, Alive: true, Start: ago(10 * time.Second), OpenFDs: -1}
	f.Evidence.Queue = &facts.Queue{At: t0, Listening: true, Length: 2, Limit: 4096, ListeningSince: ago(time.Hour), WaitingSince: at}
	return f
}

// TestInheritedListener: a child of a runtime that is gone keeps its listener. It does not
// start, and may have lived for long beside the runtime.
func TestInheritedListener(t *testing.T) {
	for comm, want := range map[string]string{"python3": RuntimeNotListening, "containerd": RuntimeStarting, "cri-dockerd": RuntimeStarting} {
		f := inherited(comm)
		v := Judge(&f, t0, nil)
		if v.Reason != want || (want == RuntimeNotListening) != strings.Contains(v.Next, "End pid 90 (python3)") {
			t.Errorf("%s: %s, %q, want %s", comm, v.Reason, v.Next, want)
		}
		f.Evidence.Process.Start, f.Evidence.Process.Restarts = ago(time.Hour-time.Second), []time.Time{ago(6 * time.Second)}
		if v := Judge(&f, t0, nil); comm == "python3" && v.Reason != want {
			t.Errorf("%s, older than the last answer: %s, want %s", comm, v.Reason, want)
		}
	}
}

// TestSlowOnAnIdleNode: a runtime under strace waits, and the node's CPUs are idle.
func TestSlowOnAnIdleNode(t *testing.T) {
	for idle, want := range map[float64]string{0.9: "", 0.1: NodePressure} {
		f := healthyFacts(t0)
		f.Relist.Lists = []time.Duration{700 * time.Millisecond, 700 * time.Millisecond}
		f.Evidence.Process = &facts.Process{At: t0, PID: 812, Comm: "containerd", Alive: true, OpenFDs: -1, Delay: 0.4, CPU: 0.1, DelayPerRun: time.Millisecond}
		f.Evidence.Cgroup = &facts.Cgroup{At: t0}
		f.Evidence.Node = &facts.Node{At: t0, CPUSome: 90, CPUIdle: idle}
		named(t, fmt.Sprintf("CPUs idle for %.1f", idle), &f, want)
	}
}

// TestBlindBehindMounts: plegd without the volume of the socket sees nothing, and the node
// may be well.
func TestBlindBehindMounts(t *testing.T) {
	f := healthyFacts(t0)
	noConnection(&f, facts.CauseMissing)
	f.Status.LastGood = ago(200 * time.Second)
	f.Evidence.Listener = &facts.Listener{At: t0, PID: 812, Comm: "containerd", OtherMounts: true}
	v := Judge(&f, t0, nil)
	if v.State != facts.StateUnknown || v.NotReadyIn != nil || !v.NodeReady || !strings.Contains(v.Next, "Mount the directory") {
		t.Errorf("%s, NotReady in %v, %q", v.State, v.NotReadyIn, v.Next)
	}
}

// TestHiddenSocket: where a mount hides the directory of the runtime's state with its socket, a restart loses what runs.
func TestHiddenSocket(t *testing.T) {
	f := healthyFacts(t0)
	f.Endpoint.Path = "/run/containerd/containerd.sock"
	f.Calls = map[string]facts.Call{"version": {LastOK: t0}}
	f.Probe = facts.Probe{At: t0, Stage: facts.StageConnect, Cause: facts.CauseMissing, FailedSince: ago(5 * time.Second)}
	f.Evidence.Storage = &facts.Storage{At: t0, FileSystems: []facts.FileSystem{{Use: "state", Directory: "/run/containerd", Lost: true}}}
	v := Judge(&f, t0, nil)
	if v.Reason != RuntimeStorageFull || len(v.Active) != 1 || !strings.Contains(v.Next, "Do not restart the runtime before") {
		t.Errorf("%q, %+v, %q", v.Reason, v.Active, v.Next)
	}
}

// TestPartsMissing: facts without a part (an older plegd's, or an edited file) are judged
// and do not panic.
func TestPartsMissing(t *testing.T) {
	for _, file := range scenarioFiles(t, "*") {
		b, err := facts.Marshal(readScenario(t, file).Facts)
		must.Do(t, err)
		var whole map[string]any
		must.Do(t, json.Unmarshal(b, &whole))
		without(whole, 2, func() {
			b, err := json.Marshal(whole)
			must.Do(t, err)
			var f facts.Facts
			must.Do(t, facts.Unmarshal(b, &f))
			Judge(&f, scenarioNow, nil)
			if f.Relist.Failures++; f.Relist.Last != nil {
				f.Relist.Last.Err = nil
			}
			Judge(&f, scenarioNow, nil)
		})
	}
}

// without calls do with each field left out, down to a depth.
func without(fields map[string]any, depth int, do func()) {
	for name, v := range fields {
		delete(fields, name)
		do()
		fields[name] = v
		if inner, ok := v.(map[string]any); ok && depth > 1 {
			without(inner, depth-1, do)
		}
	}
}

// TestConstantFault: the primary reason of a fault that lasts changes once at most
// after the first 10 s. Samples younger than 2.1 s in a scenario are repeated, the rest
// stays.
func TestConstantFault(t *testing.T) {
	for _, file := range scenarioFiles(t, "*") {
		b, err := facts.Marshal(readScenario(t, file).Facts)
		must.Do(t, err)
		var previous *facts.Verdict
		var names []string
		for s := range 20 {
			later := time.Duration(2*s) * time.Second
			var whole any
			must.Do(t, json.Unmarshal(b, &whole))
			again, err := json.Marshal(sampledAgain(whole, later))
			must.Do(t, err)
			var f facts.Facts
			must.Do(t, facts.Unmarshal(again, &f))
			v := Judge(&f, scenarioNow.Add(later), previous)
			if previous != nil && v.Reason != previous.Reason && s > 5 {
				names = append(names, v.Reason)
			}
			previous = v
		}
		if len(names) > 1 {
			t.Errorf("%s: after 10 s %q", file, names)
		}
	}
}

// sampledAgain moves the times that are younger than 2.1 s.
func sampledAgain(v any, later time.Duration) any {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			v[name] = sampledAgain(field, later)
		}
	case []any:
		for i := range v {
			v[i] = sampledAgain(v[i], later)
		}
	case string:
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil && scenarioNow.Sub(at) < 2100*time.Millisecond {
			return at.Add(later).Format(time.RFC3339Nano)
		}
	}
	return v
}
