package exporter

import (
	"sync"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

// t0 is the moment of every fake snapshot.
var t0 = time.Date(2026, 11, 21, 3, 4, 5, 250_000_000, time.UTC)

func ago(d time.Duration) time.Time { return t0.Add(-d) }

func clock() time.Time { return t0 }

// fakeSource answers with a snapshot that the test sets.
type fakeSource struct {
	mu   sync.Mutex
	snap Snapshot
}

func newFakeSource(s Snapshot) *fakeSource { return &fakeSource{snap: s} }

func (f *fakeSource) Snapshot(now time.Time) Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.snap
	s.Now = now
	return s
}

func (f *fakeSource) set(s Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snap = s
}

func fakeConfig() health.Config {
	return health.Config{
		RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute, RPCTimeout: 2 * time.Minute, InspectTimeout: 10 * time.Second,
	}
}

// starting is a daemon that has just come up and has found no runtime.
func starting() Snapshot {
	return Snapshot{
		Now: t0,
		Facts: health.Facts{
			Config: fakeConfig(), Started: ago(1200 * time.Millisecond),
			Endpoint: health.Endpoint{Searched: []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock"}},
		},
		Verdict: health.Verdict{
			State: health.StateStarting, Reason: "Starting", Threshold: 3 * time.Minute, Since: ago(1200 * time.Millisecond),
			Active: []health.Active{{
				ID: "Starting", Severity: health.SeverityInfo, Since: ago(1200 * time.Millisecond),
				Evidence: []string{"no relist has succeeded since plegd started 1.2s ago"},
			}},
			KubeletMessage: "[container runtime status check may not have completed yet, PLEG is not healthy: pleg has yet to be successful]",
			Next:           "Wait. If this stands for more than a minute, see whether the container runtime runs: systemctl status containerd.",
		},
	}
}

// healthy is a node with 110 pods where all is well.
func healthy() Snapshot {
	calls := map[string]health.Call{
		"version":         {LastOK: ago(1500 * time.Millisecond), LastOKDuration: 412 * time.Microsecond, Bytes: 45},
		"status":          {LastOK: ago(3 * time.Second), LastOKDuration: 890 * time.Microsecond, Bytes: 161},
		"list_podsandbox": {LastOK: ago(310 * time.Millisecond), LastOKDuration: 3100 * time.Microsecond, Bytes: 92_200},
		"list_containers": {LastOK: ago(306 * time.Millisecond), LastOKDuration: 4200 * time.Microsecond, Bytes: 231_000},
		"podsandbox_status": {
			LastOK: ago(41 * time.Second), LastOKDuration: 1300 * time.Microsecond, Bytes: 612,
			LastFailed: ago(49 * time.Hour), LastErr: &health.CallError{
				Operation: "podsandbox_status", Code: "NotFound", Message: `an error occurred when try to find sandbox "4f0c": not found`,
			},
		},
		"container_status": {LastOK: ago(41 * time.Second), LastOKDuration: 2100 * time.Microsecond, Bytes: 1402},
	}
	return Snapshot{
		Now: t0,
		Facts: health.Facts{
			Config: fakeConfig(), Started: ago(51 * time.Hour),
			Endpoint: health.Endpoint{Path: "/run/containerd/containerd.sock", Source: "the kubelet's arguments"},
			Relist: health.Relist{
				Attempts: 183_402, LastSeen: ago(314 * time.Millisecond),
				Last: &health.RelistResult{
					Start: ago(314 * time.Millisecond), End: ago(302 * time.Millisecond),
					ListPodSandbox: 3100 * time.Microsecond, ListContainers: 4200 * time.Microsecond,
					Serial: 21 * time.Millisecond, Changed: 2, Inspected: 2,
				},
				Lists: []time.Duration{6900 * time.Microsecond, 7100 * time.Microsecond, 31 * time.Millisecond, 7300 * time.Microsecond},
				Slowest: []health.PodInspection{
					{UID: "0c1d", Namespace: "shop", Name: "checkout-7d9f8b6c5-x2x4v", Operation: "container_status", Start: ago(41 * time.Second), Duration: 9200 * time.Microsecond},
					{UID: "77aa", Namespace: "kube-system", Name: "coredns-5d78c9869d-8x7zq", Operation: "podsandbox_status", Start: ago(100 * time.Second), Duration: 4100 * time.Microsecond},
				},
			},
			Modelled: health.Modelled{LastSeen: ago(520 * time.Millisecond)},
			Status: health.Status{
				Answered: true, LastGood: ago(3 * time.Second),
				RuntimeReady: &health.Condition{Status: true}, NetworkReady: &health.Condition{Status: true},
			},
			Calls:    calls,
			Probe:    health.Probe{At: ago(1500 * time.Millisecond), OK: true, Connect: 84 * time.Microsecond, Settings: 240 * time.Microsecond, RPC: 412 * time.Microsecond},
			Runtime:  health.Runtime{Name: "containerd", Version: "1.7.24", CRIVersion: "v1"},
			Evidence: fakeEvidence(),
		},
		Verdict: health.Verdict{
			State: health.StateHealthy, PLEGHealthy: true, SyncLoopAllowed: true, RulesOK: true, NodeReady: true,
			LastSeen: ago(314 * time.Millisecond), LastSeenAge: 314 * time.Millisecond,
			ModelledLastSeen: ago(520 * time.Millisecond), ModelledAge: 520 * time.Millisecond,
			Threshold: 3 * time.Minute, Since: ago(49 * time.Hour), Active: []health.Active{},
		},
		Ready: true, Counted: true, RunningPods: 110,
		Containers: [cri.NumStates]int{cri.StateRunning: 221, cri.StateExited: 14},
	}
}

// sandboxID is a sandbox that a shim serves.
const sandboxID = "4f0c7d1be2a95c3386f0d1b7a4e8c2905d6f3b1a7c9e0d2f4b6a8c1e3d5f7092"

// fakeEvidence is what a node says of a runtime that is well.
func fakeEvidence() health.Evidence {
	e := health.Evidence{
		Sources: map[string]health.Source{},
		Queue:   &health.Queue{At: ago(700 * time.Millisecond), Listening: true, Inode: 41, Limit: 4096},
		Listener: &health.Listener{
			At: ago(400 * time.Millisecond), Inode: 41, PID: 812, Comm: "containerd", Command: "/usr/bin/containerd", Unit: "containerd.service",
			Since: ago(76 * time.Hour),
		},
		Connections: &health.Connections{At: ago(3 * time.Second), Accepted: 9},
		Process: &health.Process{
			At: ago(700 * time.Millisecond), PID: 812, Comm: "containerd", Command: "/usr/bin/containerd", Unit: "containerd.service", Alive: true, Start: ago(76 * time.Hour),
			OpenFDs: 1263, MaxFDs: 1 << 20, Threads: map[string]int{"S": 15}, CPU: 0.021, Delay: 0.0004, RestartsTotal: 1,
		},
		Children: &health.Children{At: ago(2 * time.Second), Shims: 110},
		Cgroup: &health.Cgroup{
			At: ago(time.Second), Path: "/system.slice/containerd.service", ThrottledTotal: 1500 * time.Millisecond,
			PIDs: 1432, Memory: 2_310_000_000,
		},
		Node: &health.Node{
			At: ago(time.Second), CPUIdle: 0.93, CPUSome: 3.1, MemorySome: 0, MemoryFull: 0, IOSome: 0.4, IOFull: 0.2,
			Files: 2144, FilesMax: 9223372036854775807, Threads: 3120, ThreadsMax: 63_000,
		},
		Kubelet: &health.Kubelet{At: ago(4 * time.Second), Seen: true, OK: true, LastSeen: ago(4250 * time.Millisecond)},
	}
	for _, name := range []string{"dial", "queue", "connections", "process", "children", "cgroup", "node", "kubelet", "state"} {
		e.Sources[name] = health.Source{Up: true, At: ago(time.Second), Duration: 210 * time.Microsecond}
	}
	for _, name := range []string{"web", "control"} { // nothing is asked there
		e.Sources[name] = health.Source{Up: true, At: ago(time.Minute)}
	}
	return e
}

// degraded is a node on which two pods cannot be inspected.
func degraded() Snapshot {
	s := healthy()
	stuck := health.PodInspection{
		UID: "b9e1", Namespace: "batch", Name: "nightly-report-28872000-k4j2p", Operation: "container_status", Start: ago(8400 * time.Millisecond), Failures: 6,
	}
	failing := stuck
	failing.Start, failing.Duration = ago(19400*time.Millisecond), 10*time.Second
	failing.Err = &health.CallError{
		Operation: "container_status", Code: "DeadlineExceeded", Message: "context deadline exceeded",
	}
	r := &s.Facts.Relist
	r.InFlight = &health.InFlight{Start: ago(8412 * time.Millisecond), Phase: health.PhaseInspect, PhaseStart: ago(8404 * time.Millisecond), Pods: 3, Inspected: 2}
	r.LastSeen = ago(8412 * time.Millisecond)
	r.Last = &health.RelistResult{
		Start: ago(19412 * time.Millisecond), End: ago(9400 * time.Millisecond),
		ListPodSandbox: 3 * time.Millisecond, ListContainers: 4 * time.Millisecond,
		Serial: 10030 * time.Millisecond, Changed: 3, Inspected: 3, Failed: 1,
	}
	r.Reinspect = 1
	r.Inspecting = []health.PodInspection{stuck, {UID: "1", Namespace: "shop", Name: "quick", Operation: "podsandbox_status", Start: ago(4 * time.Millisecond)}}
	r.Failing = []health.PodInspection{failing}
	r.Slowest = append([]health.PodInspection{failing}, r.Slowest...)
	call := s.Facts.Calls["container_status"]
	call.LastFailed, call.LastErr, call.InFlightSince = ago(9400*time.Millisecond), failing.Err, ago(8380*time.Millisecond)
	s.Facts.Calls["container_status"] = call
	s.Facts.Evidence.Children.Stuck = []health.Child{
		{PID: 4711, Comm: "containerd-shim", State: "T", Since: ago(6*time.Minute + 2*time.Second), Sandbox: sandboxID},
	}
	s.Facts.Evidence.Children.Old = []health.Child{{PID: 5012, Comm: "runc", State: "S", Since: ago(5 * time.Minute)}}
	s.Facts.Evidence.Connections.Stuck = []health.StuckClient{
		{PID: 3301, Comm: "crictl", State: "T", UnsentBytes: 204_800, UnreadBytes: 67_200, Since: ago(2 * time.Second)},
	}
	left, latest := 41*time.Second, 52*time.Second
	s.Verdict = health.Verdict{
		State: health.StateDegraded, Reason: "PodInspectionStall", RunnerUp: "ShimStuck",
		PLEGHealthy: true, SyncLoopAllowed: true, RulesOK: true, NodeReady: true, RulesFailIn: &left,
		LastSeen: r.LastSeen, LastSeenAge: t0.Sub(r.LastSeen),
		ModelledLastSeen: ago(139 * time.Second), ModelledAge: 139 * time.Second,
		Threshold: 3 * time.Minute, NotReadyIn: &left, NotReadyInLatest: &latest, Since: ago(6*time.Minute + 2*time.Second),
		Active: []health.Active{
			{ID: "PodInspectionStall", Severity: health.SeverityCritical, Since: ago(6*time.Minute + 2*time.Second), Evidence: []string{
				"the inspection of batch/nightly-report-28872000-k4j2p has been in container_status for 8.4s, its 7th attempt; 2 of 3 pods are done",
				"both lists answered in 7ms",
			}},
			{ID: "ShimStuck", Severity: health.SeverityWarning, Since: ago(5 * time.Minute), Evidence: []string{
				"container_status hangs for one pod (b9e1) only",
				"pid 4711 (containerd-shim), for sandbox 4f0c7d1be2a95, is stopped",
			}},
		},
		Next: "Find the shim of batch/nightly-report-28872000-k4j2p: crictl pods --name nightly-report-28872000-k4j2p -q, then ps -o pid,stat,wchan:32,args -C containerd-shim-runc-v2. Restarting the runtime does not help.",
	}
	return s
}

// unhealthy is a node whose runtime has hung for longer than the threshold.
func unhealthy() Snapshot {
	s := healthy()
	began := 3*time.Minute + 13*time.Second
	hang := &health.CallError{Operation: "list_podsandbox", Code: "DeadlineExceeded", Message: "context deadline exceeded"}
	r := &s.Facts.Relist
	r.Attempts, r.Failures = 183_404, 1
	r.LastSeen = ago(began)
	r.InFlight = &health.InFlight{Start: ago(71 * time.Second), Phase: health.PhaseListPodSandbox, PhaseStart: ago(71 * time.Second)}
	r.Last = &health.RelistResult{
		Start: ago(began - 1014*time.Millisecond), End: ago(72 * time.Second), Err: hang,
		ListPodSandbox: 2 * time.Minute, Serial: 2 * time.Minute,
	}
	for name, c := range s.Facts.Calls {
		c.LastOK = ago(began + time.Second)
		s.Facts.Calls[name] = c
	}
	c := s.Facts.Calls["list_podsandbox"]
	c.LastFailed, c.LastErr, c.InFlightSince = ago(72*time.Second), hang, ago(71*time.Second)
	s.Facts.Calls["list_podsandbox"] = c
	c = s.Facts.Calls["status"]
	c.InFlightSince = ago(66 * time.Second)
	s.Facts.Calls["status"] = c
	s.Facts.Status.LastGood, s.Facts.Status.InFlightSince = ago(began+2*time.Second), ago(66*time.Second)
	s.Facts.Probe = health.Probe{
		At: ago(9 * time.Second), Stage: health.StageSettings, Cause: health.CauseTimeout,
		Detail: "no SETTINGS within 1s", Connect: 90 * time.Microsecond, Settings: time.Second, Failures: 12,
	}
	e := &s.Facts.Evidence
	e.Queue.Length, e.Queue.WaitingSince = 198, ago(began)
	e.Process.OpenFDs, e.Process.MaxFDs = 256, 256
	e.Process.Threads = map[string]int{"S": 14, "D": 1}
	e.Process.Blocked = []health.BlockedThread{{TID: 4719, Since: ago(began), Channel: "io_schedule", Syscall: "fsync"}}
	e.Process.WaitChannels = []string{"io_schedule"}
	e.Cgroup.Throttled, e.Cgroup.PIDsMax = 0.25, 4096
	e.Node.CPUSome, e.Node.IOSome, e.Node.IOFull = 12, 61, 48
	e.Kubelet = &health.Kubelet{At: ago(4 * time.Second), Seen: true, Detail: "syncloop failed", FailedSince: ago(9 * time.Second), LastSeen: ago(began)}
	e.Connections = nil
	e.Sources["connections"] = health.Source{At: ago(3 * time.Second), Duration: time.Millisecond, Err: "reading sock_diag: operation not permitted"}
	s.Verdict = health.Verdict{
		State: health.StateUnhealthy, Reason: "RuntimeUnresponsive",
		LastSeen: r.LastSeen, LastSeenAge: began, ModelledLastSeen: ago(began + 200*time.Millisecond), ModelledAge: began + 200*time.Millisecond,
		Threshold: 3 * time.Minute, RulesFailIn: new(time.Duration), NotReadyIn: new(time.Duration), NotReadyInLatest: new(time.Duration), Since: ago(2*time.Minute + 43*time.Second),
		Active: []health.Active{{
			ID: "RuntimeUnresponsive", Severity: health.SeverityCritical, Since: ago(began - 2*time.Second), Evidence: []string{
				"every call hangs: list_podsandbox for 1m11s, status for 1m06s; the last answer to any call came 3m14s ago",
				"fresh dial: connected in 0.1ms, no SETTINGS within 1s, 12 times in a row",
			},
		}},
		KubeletMessage: "[container runtime is down, PLEG is not healthy: pleg was last seen active 3m13s ago; threshold is 3m0s]",
		Next:           "See whether the runtime is stopped or starved: systemctl status containerd; ps -o pid,stat,wchan:32,args -C containerd. Before restarting it save its stacks: kill -USR1 PID writes them to its log. A restart ends most such hangs and leaves the pods running.",
	}
	return s
}

// contractReasons is every reason that plegd is going to know, so that the
// series are counted as they will be.
func contractReasons() []ReasonLabel {
	var out []ReasonLabel
	for _, id := range []string{
		"Starting", "RuntimeSocketMissing", "RuntimeSocketUnlinked", "RuntimeNotListening", "RuntimeSocketPermissionDenied",
		"AcceptFDExhausted", "AcceptQueueFull", "AcceptStalled", "RuntimeFrozen", "RuntimeStorageStall", "RuntimeStorageLocked",
		"RuntimeThrottled", "RuntimeStarting", "RuntimeRestarting", "DockerDaemonUnreachable", "DockerContainerdUnreachable", "RuntimeUnresponsive",
		"RuntimeListStall", "ListResponseTooLarge", "RuntimeNotReady", "NetworkNotReady", "CRIVersionUnsupported",
		"PodInspectionStall", "PodInspectionFailing", "ShimStuck", "RelistSlow", "ChangeBurst", "TooManyContainers",
		"FDsRunningOut", "ResponseNearLimit", "NodeCPUStall", "NodeMemoryStall", "NodeIOStall", "PIDsExhausted",
		"FileTableFull", "RuntimeHelperStuck", "KubeletStalled", "KubeletDown", "EventSubscriberStuck", "EventStreamBroken", "EventsMissed",
		"EventChannelFull", "RelistLoopStalled", "Unknown",
	} {
		out = append(out, ReasonLabel{ID: id, Severity: "critical"})
	}
	return out
}

// fewReasons are the reasons of the fake snapshots, for golden files that one
// can read.
func fewReasons() []ReasonLabel {
	return []ReasonLabel{{"Starting", "info"}, {"RuntimeUnresponsive", "critical"}, {"PodInspectionStall", "critical"}, {"ShimStuck", "warning"}}
}
