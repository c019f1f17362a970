package health

import (
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// TestSeverity: a cause of slowness pages only if calls are late; a condition that is no fault alone never does.
func TestSeverity(t *testing.T) {
	lists := func(d time.Duration, change func(*facts.Facts)) func(*facts.Facts) {
		return func(f *facts.Facts) {
			f.Relist.Lists = []time.Duration{d, d, d}
			change(f)
		}
	}
	throttled := func(f *facts.Facts) {
		f.Evidence.Cgroup = &facts.Cgroup{At: t0, Path: "/x", Throttled: 0.9, ThrottledPeriods: 0.9, ThrottledAt: t0}
	}
	starved := func(f *facts.Facts) {
		f.Evidence.Cgroup = &facts.Cgroup{At: t0, Path: "/x"}
		f.Evidence.Process = &facts.Process{At: t0, PID: 7, Alive: true, Delay: 0.9, DelayPerRun: 200 * time.Millisecond}
	}
	disk := func(f *facts.Facts) {
		thread := facts.BlockedThread{TID: 8, Since: ago(5 * time.Second), Channel: "io_schedule"}
		f.Evidence.Process = &facts.Process{At: t0, PID: 7, Alive: true, Blocked: []facts.BlockedThread{thread}}
	}
	strace := func(f *facts.Facts) {
		f.Evidence.Process = &facts.Process{At: t0, PID: 7, Comm: "containerd", Alive: true, TracerPID: 50, Tracer: "strace"}
	}
	inFlight := func(throttled time.Duration) func(*facts.Facts) {
		return func(f *facts.Facts) {
			f.Calls = map[string]facts.Call{opVersion: {LastOK: t0}}
			f.Relist.InFlight = &facts.InFlight{Start: ago(20 * time.Second), Phase: facts.PhaseListContainers, PhaseStart: ago(20 * time.Second), Throttled: throttled}
		}
	}
	inspecting := func(throttled time.Duration) func(*facts.Facts) {
		return func(f *facts.Facts) {
			start := ago(20 * time.Second)
			f.Relist.Inspecting = []facts.PodInspection{{UID: "u", Operation: "container_status", Start: start, CallStart: start, Throttled: throttled}}
		}
	}
	killed := func(f *facts.Facts) {
		f.Evidence.Process = &facts.Process{At: t0, PID: 7, Alive: true}
		limit := facts.MemoryLimit{Path: "/a", Max: 1 << 30, OOMKills: 2, OOMKilledAt: ago(5 * time.Second)}
		f.Evidence.Cgroup = &facts.Cgroup{At: t0, MemoryLimits: []facts.MemoryLimit{limit}}
	}
	fileSize := func(limit int) func(*facts.Facts) {
		return func(f *facts.Facts) {
			f.Evidence.Process = &facts.Process{At: t0, PID: 7, Alive: true, FileSizeMax: limit, LargestFile: 4096}
		}
	}
	tasks := func(f *facts.Facts) { f.Evidence.Cgroup = &facts.Cgroup{At: t0, PIDs: 100, PIDsMax: 100} }
	refusal := func(f *facts.Facts) {
		f.Evidence.Cgroup = &facts.Cgroup{At: t0, PIDs: 20, PIDsMax: 100, PIDsRefused: true}
	}
	peer := func(state facts.LinkState) func(*facts.Facts) {
		return func(f *facts.Facts) {
			c := facts.Chain{At: t0, Links: []facts.Link{
				{Kind: facts.KindRuntime, PID: 7, State: state}, {Kind: facts.KindProcess, Name: "peer", PID: 8, State: facts.LinkAsleep},
			}}
			f.Evidence.Findings = []facts.Finding{{Reason: RuntimePeerStuck, Since: ago(time.Minute), Chain: c}}
		}
	}
	noNetwork := func(lastGood time.Time) func(*facts.Facts) {
		return func(f *facts.Facts) {
			f.Status.NetworkReady = &facts.Condition{}
			f.Status.LastGood = lastGood
		}
	}
	starts := func(ages ...time.Duration) func(*facts.Facts) {
		return func(f *facts.Facts) {
			f.Evidence.Process = &facts.Process{At: t0, PID: 7, Alive: true}
			for _, age := range ages {
				f.Evidence.Process.Restarts = append(f.Evidence.Process.Restarts, ago(age))
			}
		}
	}
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		change   func(*facts.Facts)
		reason   string
		severity facts.Severity
	}{
		"a quota, lists of 350 ms":            {lists(350*ms, throttled), RuntimeThrottled, facts.SeverityWarning},
		"a quota, lists of 2.5 s":             {lists(2500*ms, throttled), RuntimeThrottled, facts.SeverityCritical},
		"no CPU, lists of 350 ms":             {lists(350*ms, starved), RuntimeStarved, facts.SeverityWarning},
		"no CPU, lists of 2.5 s":              {lists(2500*ms, starved), RuntimeStarved, facts.SeverityCritical},
		"strace, lists of 600 ms":             {lists(600*ms, strace), RuntimeFrozen, facts.SeverityWarning},
		"strace, lists of 2.5 s":              {lists(2500*ms, strace), RuntimeFrozen, facts.SeverityCritical},
		"strace, on a busy node":              {lists(600*ms, func(f *facts.Facts) { strace(f); f.Evidence.Node = &facts.Node{At: t0, CPUSome: 95} }), RuntimeFrozen, facts.SeverityWarning},
		"a debugger, all is answered at once": {strace, "", ""},
		"a disk, lists of 350 ms":             {lists(350*ms, disk), RuntimeStorageStall, facts.SeverityWarning},
		"a peer that reads nothing, 2.5 s":    {lists(2500*ms, peer(facts.LinkPeer)), RuntimePeerStuck, facts.SeverityCritical},
		"an image registry, lists of 2.5 s":   {lists(2500*ms, peer(facts.LinkUnanswered)), RuntimePeerStuck, facts.SeverityWarning},
		"a list of 20 s":                      {inFlight(0), RuntimeListStall, facts.SeverityCritical},
		"a list of 20 s, plegd throttled":     {inFlight(19 * time.Second), "", ""},
		"a status of 20 s":                    {inspecting(0), PodInspectionStall, facts.SeverityCritical},
		"a status of 20 s, plegd throttled":   {inspecting(19 * time.Second), "", ""},
		"a process is killed for its limit":   {killed, RuntimeMemoryLimited, facts.SeverityWarning},
		"no further task, all is answered":    {tasks, KernelLimitReached, facts.SeverityWarning},
		"a task was refused":                  {refusal, KernelLimitReached, facts.SeverityWarning},
		"no further task, lists of 2.5 s":     {lists(2500*ms, tasks), KernelLimitReached, facts.SeverityCritical},
		"a new node without a network":        {noNetwork(time.Time{}), NetworkNotReady, facts.SeverityWarning},
		"a node that has lost its network":    {noNetwork(ago(time.Hour)), NetworkNotReady, facts.SeverityCritical},
		"a loop of 4 minutes":                 {starts(14*time.Minute, 10*time.Minute, 6*time.Minute, 2*time.Minute), RuntimeRestarting, facts.SeverityCritical},
		"a loop of 4 minutes, a life of 7":    {starts(19*time.Minute, 15*time.Minute, 11*time.Minute, 7*time.Minute), "", ""},
		"a loop of 3 s that ended 10 s ago":   {starts(19*time.Second, 16*time.Second, 13*time.Second, 10*time.Second), RuntimeRestarting, facts.SeverityWarning},
		"three starts within half an hour":    {starts(29*time.Minute, 15*time.Minute, time.Minute), "", ""},
		"mounts at their limit":               {func(f *facts.Facts) { f.Evidence.Storage = &facts.Storage{Mounts: 99_000, MountsMax: 100_000} }, KernelLimitReached, facts.SeverityWarning},
		"no further byte in a file":           {fileSize(1024), KernelLimitReached, facts.SeverityWarning},
		"a limit above all files":             {fileSize(1 << 30), "", ""},
		"8,000 threads":                       {func(f *facts.Facts) { f.Evidence.Process = &facts.Process{PID: 7, Alive: true, ThreadCount: 8000} }, KernelLimitReached, facts.SeverityWarning},
		"a file system that was shut down":    {storageOf(facts.FileSystem{Bytes: 1 << 40, FreeBytes: 1 << 39, ReadOnly: true, Option: "shutdown"}), RuntimeStorageFull, facts.SeverityWarning},
		"50 MiB of 1 TiB":                     {storageOf(facts.FileSystem{Bytes: 1 << 40, FreeBytes: 50 << 20}), RuntimeStorageFull, facts.SeverityWarning},
		"5 GiB of 1 TiB, less than a percent": {storageOf(facts.FileSystem{Bytes: 1 << 40, FreeBytes: 5 << 30}), "", ""},
		"5 MiB of a small tmpfs":              {storageOf(facts.FileSystem{Bytes: 200 << 20, FreeBytes: 5 << 20}), "", ""},
		"500 of a million inodes":             {storageOf(facts.FileSystem{Bytes: 1 << 40, FreeBytes: 1 << 39, Inodes: 1e6, FreeInodes: 500}), RuntimeStorageFull, facts.SeverityWarning},
	} {
		f := healthyFacts(t0)
		tt.change(&f)
		v := Judge(&f, t0, nil)
		if v.Reason != tt.reason || tt.reason != "" && v.Active[0].Severity != tt.severity {
			t.Errorf("%s: want %s %s, got %v", name, tt.reason, tt.severity, v.Active)
		}
	}
}

func storageOf(s facts.FileSystem) func(*facts.Facts) {
	return func(f *facts.Facts) { f.Evidence.Storage = &facts.Storage{FileSystems: []facts.FileSystem{s}} }
}

// TestNewNodeInTheEnd: a network that does not become ready is a fault of a new node, too.
func TestNewNodeInTheEnd(t *testing.T) {
	f := healthyFacts(t0)
	f.Status.NetworkReady = &facts.Condition{}
	f.Status.LastGood = time.Time{}
	first := Judge(&f, ago(networkStart), nil)
	if a := Judge(&f, t0, first).ActiveReason(NetworkNotReady); a == nil || a.Severity != facts.SeverityCritical {
		t.Errorf("after %s: %+v", networkStart, a)
	}
}

// TestProvenCauseFirst: what the chain proves comes before each symptom of it, and no step of a symptom harms it.
func TestProvenCauseFirst(t *testing.T) {
	shim := facts.Link{Kind: facts.KindShim, Name: "containerd-shim", PID: 20, State: facts.LinkStopped, Since: ago(time.Minute)}
	runc := facts.Link{Kind: facts.KindHelper, Name: "runc", PID: 30, State: facts.LinkAsleep, Since: ago(2 * time.Second)}
	exhausted := func(f *facts.Facts) {
		f.Evidence.Process = &facts.Process{At: t0, PID: 7, Comm: "containerd", Alive: true, OpenFDs: 8, MaxFDs: 8, ExhaustedAt: t0}
		f.Evidence.Queue = &facts.Queue{At: t0, Listening: true, Length: 3, Limit: 9, WaitingSince: ago(5 * time.Second), ListeningSince: ago(time.Hour)}
	}
	busy := func(f *facts.Facts) { f.Evidence.Node = &facts.Node{At: t0, CPUSome: 95, CPUIdle: 0.01} }
	for name, tt := range map[string]struct {
		culprit facts.Link
		change  func(*facts.Facts)
		want    string
		next    string
	}{
		"a stopped shim, and no descriptor is free": {shim, exhausted, ShimStuck, "kill -CONT 20"},
		"a helper":                      {runc, func(*facts.Facts) {}, RuntimeHelperStuck, "kill 30"},
		"a young helper on a busy node": {runc, busy, RuntimeListStall, ""},
	} {
		f := hangingList()
		f.Evidence.Chain = chainOf(tt.culprit)
		tt.change(&f)
		v := Judge(&f, t0, nil)
		if v.Reason != tt.want || !strings.Contains(v.Next, tt.next) || tt.next == "" && strings.Contains(v.Next, "kill") {
			t.Errorf("%s: %s, want %s; next %q: %v", name, v.Reason, tt.want, v.Next, v.Active)
		}
	}
	f := answering()
	exhausted(&f)
	f.Evidence.Children = &facts.Children{Shims: 1, Stuck: []facts.Child{{PID: 20, Comm: "containerd-shim", State: "T", Since: ago(time.Minute)}}}
	if v := Judge(&f, t0, nil); v.Reason != AcceptFDExhausted || !strings.Contains(v.Next, "do not restart the runtime") {
		t.Errorf("no chain: %s: %q", v.Reason, v.Next)
	}
}

// TestHopIsTheCulprit: where a hop is named, the runtime that waits for it is not the culprit, and Next is the reason's.
func TestHopIsTheCulprit(t *testing.T) {
	f := behindDocker(t0)
	h := &f.Evidence.Hops[0]
	h.Process.Threads = map[string]int{"T": 9}
	h.Process.StoppedAt = t0
	hopFails(h, facts.StageRPC, facts.CauseTimeout, 5*time.Second)
	f.Relist.InFlight = &facts.InFlight{Start: ago(6 * time.Second), Phase: facts.PhaseListContainers, PhaseStart: ago(6 * time.Second)}
	f.Evidence.Process = &facts.Process{At: t0, PID: 700, Comm: "cri-dockerd", Alive: true}
	f.Evidence.Chain = chainOf(facts.Link{Kind: facts.KindRuntime, Name: "cri-dockerd", PID: 700, State: facts.LinkAsleep})
	v := Judge(&f, t0, nil)
	if v.Hop != h.Socket || v.Culprit != nil || strings.Contains(v.Next, "700") {
		t.Errorf("%s at %q: culprit %+v, next %q", v.Reason, v.Hop, v.Culprit, v.Next)
	}
}

// TestQuotaOfALevel: the evidence names the cgroup above the runtime's whose quota throttles it.
func TestQuotaOfALevel(t *testing.T) {
	for level, want := range map[string]bool{"/system.slice": true, "/system.slice/x.service": false, "": false} {
		f := healthyFacts(t0)
		f.Relist.Lists = []time.Duration{time.Second, time.Second, time.Second}
		f.Evidence.Cgroup = &facts.Cgroup{At: t0, Path: "/system.slice/x.service", Throttled: 0.9, ThrottledAt: t0, ThrottledPath: level}
		v := Judge(&f, t0, nil)
		if v.Reason != RuntimeThrottled || strings.Contains(strings.Join(v.Active[0].Evidence, "; "), "by the quota of the cgroup") != want {
			t.Errorf("%q: %v", level, v.Active)
		}
	}
}

// TestSuppresses: no reason suppresses itself, or one that the table does not hold, and a suppressed one is left out at
// the same hop only.
func TestSuppresses(t *testing.T) {
	for _, r := range Reasons() {
		for _, id := range append(r.Suppresses, r.CausedBy...) {
			if id == r.ID || !Known(id) {
				t.Errorf("%s suppresses, or is caused by, %q", r.ID, id)
			}
		}
	}
	active := []facts.Active{{ID: AcceptFDExhausted}, {ID: FDsRunningOut}, {ID: FDsRunningOut, Hop: "/run/docker.sock"}}
	if kept := withoutSuppressed(active); len(kept) != 2 || kept[1].Hop == "" {
		t.Errorf("kept %v", kept)
	}
}
