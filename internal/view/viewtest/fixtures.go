// Package viewtest has snapshots and an incident for the tests of the packages
// that show them.
package viewtest

import (
	"sync"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view"
)

// T0 is the moment of every fake snapshot.
var T0 = time.Date(2026, 11, 21, 3, 4, 5, 250_000_000, time.UTC)

// Ago returns the moment d before T0.
func Ago(d time.Duration) time.Time { return T0.Add(-d) }

// Clock returns T0.
func Clock() time.Time { return T0 }

// Source answers with a snapshot that the test sets.
type Source struct {
	// List are the incidents.
	List []incident.Summary

	mu   sync.Mutex
	snap health.Snapshot
}

// NewSource returns a source of s.
func NewSource(s health.Snapshot) *Source { return &Source{snap: s} }

// Snapshot returns the snapshot, as of now.
func (f *Source) Snapshot(now time.Time) health.Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.snap
	s.At = now
	return s
}

// Incidents returns List.
func (f *Source) Incidents() []incident.Summary { return f.List }

// Set replaces the snapshot.
func (f *Source) Set(s health.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snap = s
}

func fakeConfig() health.Config {
	return health.Config{
		RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute, RPCTimeout: 2 * time.Minute,
	}
}

// Starting is a daemon that has just come up and has found no runtime.
func Starting() health.Snapshot {
	s := health.Snapshot{
		SchemaVersion: health.SchemaVersion, PlegdVersion: "1.0.0", Node: "worker-7", At: T0,
		Facts: health.Facts{
			Config: fakeConfig(), Started: Ago(1200 * time.Millisecond),
			Endpoint: health.Endpoint{Searched: []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock"}},
		},
		Verdict: health.Verdict{
			State: health.StateStarting, Reason: "Starting", Threshold: 3 * time.Minute, Since: Ago(1200 * time.Millisecond),
			Active: []health.Active{{
				ID: "Starting", Severity: health.SeverityInfo, Since: Ago(1200 * time.Millisecond),
				Evidence: []string{"no relist has succeeded since plegd started 1.2s ago"},
			}},
			KubeletMessage: "[container runtime status check may not have completed yet, PLEG is not healthy: pleg has yet to be successful]",
			Next:           "Wait. If this stands for more than a minute, see whether the container runtime runs: systemctl status containerd.",
		},
	}
	s.Steps = health.Steps(&s.Facts, &s.Verdict)
	return s
}

// Healthy is a node with 110 pods where all is well.
func Healthy() health.Snapshot {
	calls := map[string]health.Call{
		"version":         {LastOK: Ago(1500 * time.Millisecond), LastOKDuration: 412 * time.Microsecond, Bytes: 45},
		"status":          {LastOK: Ago(3 * time.Second), LastOKDuration: 890 * time.Microsecond, Bytes: 161},
		"list_podsandbox": {LastOK: Ago(310 * time.Millisecond), LastOKDuration: 3100 * time.Microsecond, Bytes: 92_200},
		"list_containers": {LastOK: Ago(306 * time.Millisecond), LastOKDuration: 4200 * time.Microsecond, Bytes: 231_000},
		"podsandbox_status": {
			LastOK: Ago(41 * time.Second), LastOKDuration: 1300 * time.Microsecond, Bytes: 612,
			LastFailed: Ago(49 * time.Hour), LastErr: &health.CallError{
				Operation: "podsandbox_status", Code: "NotFound", Message: `an error occurred when try to find sandbox "4f0c": not found`,
			},
		},
		"container_status": {LastOK: Ago(41 * time.Second), LastOKDuration: 2100 * time.Microsecond, Bytes: 1402},
	}
	return health.Snapshot{
		SchemaVersion: health.SchemaVersion, PlegdVersion: "1.0.0", Node: "worker-7", At: T0,
		Facts: health.Facts{
			Config: fakeConfig(), Started: Ago(51 * time.Hour),
			Endpoint: health.Endpoint{Path: "/run/containerd/containerd.sock", Source: "the kubelet's arguments"},
			Relist: health.Relist{
				Attempts: 183_402, LastSeen: Ago(314 * time.Millisecond),
				Last: &health.RelistResult{
					Start: Ago(314 * time.Millisecond), End: Ago(302 * time.Millisecond),
					ListPodSandbox: 3100 * time.Microsecond, ListContainers: 4200 * time.Microsecond,
					Serial: 21 * time.Millisecond, Changed: 2, Inspected: 2,
				},
				Lists: []time.Duration{6900 * time.Microsecond, 7100 * time.Microsecond, 31 * time.Millisecond, 7300 * time.Microsecond},
				Slowest: []health.PodInspection{
					{UID: "0c1d", Namespace: "shop", Name: "checkout-7d9f8b6c5-x2x4v", Operation: "container_status", Start: Ago(41 * time.Second), Duration: 9200 * time.Microsecond},
					{UID: "77aa", Namespace: "kube-system", Name: "coredns-5d78c9869d-8x7zq", Operation: "podsandbox_status", Start: Ago(100 * time.Second), Duration: 4100 * time.Microsecond},
				},
			},
			Modelled: health.Modelled{LastSeen: Ago(520 * time.Millisecond)},
			Status: health.Status{
				Answered: true, LastGood: Ago(3 * time.Second),
				RuntimeReady: &health.Condition{Status: true}, NetworkReady: &health.Condition{Status: true},
			},
			Calls:    calls,
			Probe:    health.Probe{At: Ago(1500 * time.Millisecond), OK: true, Connect: 84 * time.Microsecond, Settings: 240 * time.Microsecond, RPC: 412 * time.Microsecond},
			Runtime:  health.Runtime{Name: "containerd", Version: "1.7.24", CRIVersion: "v1"},
			Pods:     &health.Pods{Running: 110, Containers: map[string]int{"created": 0, "running": 221, "exited": 14, "unknown": 0}},
			Evidence: fakeEvidence(),
		},
		Verdict: health.Verdict{
			State: health.StateHealthy, PLEGHealthy: true, SyncLoopAllowed: true, Predicted: health.Predicted{RulesOK: true, NodeReady: true},
			LastSeen: Ago(314 * time.Millisecond), LastSeenAge: 314 * time.Millisecond,
			ModelledLastSeen: Ago(520 * time.Millisecond), ModelledAge: 520 * time.Millisecond,
			Threshold: 3 * time.Minute, Since: Ago(49 * time.Hour), Active: []health.Active{},
		},
		Ready: true,
	}
}

// SandboxID is a sandbox that a shim serves.
const SandboxID = "4f0c7d1be2a95c3386f0d1b7a4e8c2905d6f3b1a7c9e0d2f4b6a8c1e3d5f7092"

// fakeEvidence is what a node says of a runtime that is well.
func fakeEvidence() health.Evidence {
	e := health.Evidence{
		Sources: map[string]health.Source{},
		Queue:   &health.Queue{At: Ago(700 * time.Millisecond), Listening: true, Inode: 41, Limit: 4096},
		Listener: &health.Listener{
			At: Ago(400 * time.Millisecond), Inode: 41, PID: 812, Comm: "containerd", Command: "/usr/bin/containerd", Unit: "containerd.service",
			Since: Ago(76 * time.Hour),
		},
		Process: &health.Process{
			At: Ago(700 * time.Millisecond), PID: 812, Comm: "containerd", Command: "/usr/bin/containerd", Unit: "containerd.service", Alive: true, Start: Ago(76 * time.Hour),
			OpenFDs: 1263, MaxFDs: 1 << 20, Threads: map[string]int{"S": 15}, CPU: 0.021, Delay: 0.0004, RestartsTotal: 1,
		},
		Children: &health.Children{At: Ago(2 * time.Second), Shims: 110},
		Cgroup: &health.Cgroup{
			At: Ago(time.Second), Path: "/system.slice/containerd.service", ThrottledTotal: 1500 * time.Millisecond,
			PIDs: 1432, Memory: 2_310_000_000,
		},
		Node: &health.Node{
			At: Ago(time.Second), CPUIdle: 0.93, CPUSome: 3.1, MemorySome: 0, MemoryFull: 0, IOSome: 0.4, IOFull: 0.2,
			Files: 2144, FilesMax: 9223372036854775807, Threads: 3120, ThreadsMax: 63_000,
		},
		Kubelet: &health.Kubelet{At: Ago(4 * time.Second), Seen: true, OK: true, LastSeen: Ago(4250 * time.Millisecond)},
	}
	for _, name := range []string{"dial", "queue", "process", "children", "cgroup", "node", "kubelet", "state"} {
		e.Sources[name] = health.Source{Up: true, At: Ago(time.Second), Duration: 210 * time.Microsecond}
	}
	for _, name := range []string{"web", "control"} { // nothing is asked there
		e.Sources[name] = health.Source{Up: true, At: Ago(time.Minute)}
	}
	return e
}

// Degraded is a node on which two pods cannot be inspected.
func Degraded() health.Snapshot {
	s := Healthy()
	stuck := health.PodInspection{
		UID: "b9e1", Namespace: "batch", Name: "nightly-report-28872000-k4j2p", Operation: "container_status", Start: Ago(8400 * time.Millisecond), Failures: 6,
	}
	failing := stuck
	failing.Start, failing.Duration = Ago(19400*time.Millisecond), 10*time.Second
	failing.Err = &health.CallError{
		Operation: "container_status", Code: "DeadlineExceeded", Message: "context deadline exceeded",
	}
	r := &s.Facts.Relist
	r.InFlight = &health.InFlight{Start: Ago(8412 * time.Millisecond), Phase: health.PhaseInspect, PhaseStart: Ago(8404 * time.Millisecond), Pods: 3, Inspected: 2}
	r.LastSeen = Ago(8412 * time.Millisecond)
	r.Last = &health.RelistResult{
		Start: Ago(19412 * time.Millisecond), End: Ago(9400 * time.Millisecond),
		ListPodSandbox: 3 * time.Millisecond, ListContainers: 4 * time.Millisecond,
		Serial: 10030 * time.Millisecond, Changed: 3, Inspected: 3, Failed: 1,
	}
	r.Reinspect = 1
	r.Inspecting = []health.PodInspection{stuck, {UID: "1", Namespace: "shop", Name: "quick", Operation: "podsandbox_status", Start: Ago(4 * time.Millisecond)}}
	r.Failing = []health.PodInspection{failing}
	r.Slowest = append([]health.PodInspection{failing}, r.Slowest...)
	call := s.Facts.Calls["container_status"]
	call.LastFailed, call.LastErr, call.InFlightSince = Ago(9400*time.Millisecond), failing.Err, Ago(8380*time.Millisecond)
	s.Facts.Calls["container_status"] = call
	s.Facts.Evidence.Children.Stuck = []health.Child{
		{PID: 4711, Comm: "containerd-shim", State: "T", Since: Ago(6*time.Minute + 2*time.Second), Sandbox: SandboxID},
	}
	s.Facts.Evidence.Children.Old = []health.Child{{PID: 5012, Comm: "runc", State: "S", Since: Ago(5 * time.Minute)}}
	left, latest := 41*time.Second, 52*time.Second
	s.Verdict = health.Verdict{
		State: health.StateDegraded, Reason: "PodInspectionStall",
		PLEGHealthy: true, SyncLoopAllowed: true, Predicted: health.Predicted{RulesOK: true, NodeReady: true, RulesFailIn: &left},
		LastSeen: r.LastSeen, LastSeenAge: T0.Sub(r.LastSeen),
		ModelledLastSeen: Ago(139 * time.Second), ModelledAge: 139 * time.Second,
		Threshold: 3 * time.Minute, NotReadyIn: &left, NotReadyInLatest: &latest, Since: Ago(6*time.Minute + 2*time.Second),
		Active: []health.Active{
			{ID: "PodInspectionStall", Severity: health.SeverityCritical, Since: Ago(6*time.Minute + 2*time.Second), Evidence: []string{
				"the inspection of batch/nightly-report-28872000-k4j2p has been in container_status for 8.4s, its 7th attempt; 2 of 3 pods are done",
				"both lists answered in 7ms",
			}},
			{ID: "ShimStuck", Severity: health.SeverityWarning, Since: Ago(5 * time.Minute), Evidence: []string{
				"container_status hangs for one pod (b9e1) only",
				"pid 4711 (containerd-shim), for sandbox 4f0c7d1be2a95, is stopped",
			}},
		},
		Next: "Find the shim of batch/nightly-report-28872000-k4j2p: crictl pods --name nightly-report-28872000-k4j2p -q, then ps -o pid,stat,wchan:32,args -C containerd-shim-runc-v2. Restarting the runtime does not help.",
	}
	s.Steps = health.Steps(&s.Facts, &s.Verdict)
	return s
}

// Unhealthy is a node whose runtime has hung for longer than the threshold.
func Unhealthy() health.Snapshot {
	s := Healthy()
	began := 3*time.Minute + 13*time.Second
	hang := &health.CallError{Operation: "list_podsandbox", Code: "DeadlineExceeded", Message: "context deadline exceeded"}
	r := &s.Facts.Relist
	r.Attempts, r.Failures = 183_404, 1
	r.LastSeen = Ago(began)
	r.InFlight = &health.InFlight{Start: Ago(71 * time.Second), Phase: health.PhaseListPodSandbox, PhaseStart: Ago(71 * time.Second)}
	r.Last = &health.RelistResult{
		Start: Ago(began - 1014*time.Millisecond), End: Ago(72 * time.Second), Err: hang,
		ListPodSandbox: 2 * time.Minute, Serial: 2 * time.Minute,
	}
	for name, c := range s.Facts.Calls {
		c.LastOK = Ago(began + time.Second)
		s.Facts.Calls[name] = c
	}
	c := s.Facts.Calls["list_podsandbox"]
	c.LastFailed, c.LastErr, c.InFlightSince = Ago(72*time.Second), hang, Ago(71*time.Second)
	s.Facts.Calls["list_podsandbox"] = c
	c = s.Facts.Calls["status"]
	c.InFlightSince = Ago(66 * time.Second)
	s.Facts.Calls["status"] = c
	s.Facts.Status.LastGood, s.Facts.Status.InFlightSince = Ago(began+2*time.Second), Ago(66*time.Second)
	s.Facts.Probe = health.Probe{
		At: Ago(9 * time.Second), Stage: health.StageSettings, Cause: health.CauseTimeout,
		Detail: "no SETTINGS within 1s", Connect: 90 * time.Microsecond, Settings: time.Second, Failures: 12,
	}
	e := &s.Facts.Evidence
	e.Queue.Length, e.Queue.WaitingSince = 198, Ago(began)
	e.Process.OpenFDs, e.Process.MaxFDs = 256, 256
	e.Process.Threads = map[string]int{"S": 14, "D": 1}
	e.Process.Blocked = []health.BlockedThread{{TID: 4719, Since: Ago(began), Channel: "io_schedule", Syscall: "fsync"}}
	e.Process.WaitChannels = []string{"io_schedule"}
	e.Cgroup.Throttled, e.Cgroup.PIDsMax = 0.25, 4096
	e.Node.CPUSome, e.Node.IOSome, e.Node.IOFull = 12, 61, 48
	e.Kubelet = &health.Kubelet{At: Ago(4 * time.Second), Seen: true, Detail: "syncloop failed", FailedSince: Ago(9 * time.Second), LastSeen: Ago(began)}
	e.Sources["queue"] = health.Source{At: Ago(3 * time.Second), Duration: time.Millisecond, Err: "reading sock_diag: operation not permitted"}
	s.Verdict = health.Verdict{
		State: health.StateUnhealthy, Reason: "RuntimeUnresponsive",
		LastSeen: r.LastSeen, LastSeenAge: began, ModelledLastSeen: Ago(began + 200*time.Millisecond), ModelledAge: began + 200*time.Millisecond,
		Threshold: 3 * time.Minute, Predicted: health.Predicted{RulesFailIn: new(time.Duration)}, NotReadyIn: new(time.Duration), NotReadyInLatest: new(time.Duration), Since: Ago(2*time.Minute + 43*time.Second),
		Active: []health.Active{{
			ID: "RuntimeUnresponsive", Severity: health.SeverityCritical, Since: Ago(began - 2*time.Second), Evidence: []string{
				"every call hangs: list_podsandbox for 1m11s, status for 1m06s; the last answer to any call came 3m14s ago",
				"fresh dial: connected in 0.1ms, no SETTINGS within 1s, 12 times in a row",
			},
		}},
		KubeletMessage: "[container runtime is down, PLEG is not healthy: pleg was last seen active 3m13s ago; threshold is 3m0s]",
		Next:           "See whether the runtime is stopped or starved: systemctl status containerd; ps -o pid,stat,wchan:32,args -C containerd. Before restarting it save its stacks: kill -USR1 PID writes them to its log. A restart ends most such hangs and leaves the pods running.",
	}
	s.Steps = health.Steps(&s.Facts, &s.Verdict)
	return s
}

// Stalled is a node whose list of containers waits for a stopped shim, half a minute
// before the kubelet stops managing pods.
func Stalled() health.Snapshot {
	s := Healthy()
	began := 149 * time.Second
	r := &s.Facts.Relist
	r.LastSeen, r.InFlight = Ago(began), &health.InFlight{Start: Ago(began - time.Second), Phase: health.PhaseListContainers, PhaseStart: Ago(began - time.Second)}
	call := s.Facts.Calls["list_containers"]
	call.LastOK, call.InFlightSince = Ago(began), Ago(began-time.Second)
	s.Facts.Calls["list_containers"] = call
	s.Facts.Evidence.Children.Stuck = []health.Child{{PID: 4711, Comm: "containerd-shim", State: "T", Since: Ago(began + 2*time.Second), Sandbox: SandboxID}}
	c := &health.Chain{At: Ago(400 * time.Millisecond), Links: []health.Link{
		{Kind: health.KindCall, Name: "list_containers", Since: Ago(began - time.Second), State: health.LinkUnanswered, Evidence: "unanswered for 2m28s"},
		{Kind: health.KindContainer, Name: "payments/api-7d9f8b6c5-x2x4v/app", State: health.LinkUnanswered, Evidence: "the call for its status alone is unanswered too"},
		{Kind: health.KindShim, Name: "containerd-shim", PID: 4711, Since: Ago(began + 2*time.Second), State: health.LinkStopped, Evidence: "stopped by a signal (SIGSTOP or job control)"},
	}}
	s.Facts.Evidence.Chain = c
	rules, left, latest := 31*time.Second, 31*time.Second, 42*time.Second
	evidence := []string{
		"shim pid 4711 (containerd-shim): stopped by a signal (SIGSTOP or job control)", "ContainerStatus of one container alone hangs too", "list_containers unanswered for 2m28s",
	}
	s.Verdict = health.Verdict{
		State: health.StateDegraded, Reason: "ShimStuck", Symptom: "RuntimeListStall", Chain: c.Links, Culprit: c.Culprit(),
		PLEGHealthy: true, SyncLoopAllowed: true, Predicted: health.Predicted{RulesOK: true, NodeReady: true, RulesFailIn: &rules},
		LastSeen: r.LastSeen, LastSeenAge: began, ModelledLastSeen: Ago(began + 200*time.Millisecond), ModelledAge: began + 200*time.Millisecond,
		Threshold: 3 * time.Minute, NotReadyIn: &left, NotReadyInLatest: &latest, Since: Ago(began - 3*time.Second),
		Active: []health.Active{
			{ID: "ShimStuck", Severity: health.SeverityCritical, Since: Ago(began - 5*time.Second), Evidence: evidence},
			{ID: "RuntimeListStall", Severity: health.SeverityCritical, Since: Ago(began - 3*time.Second), Evidence: []string{"list_containers unanswered for 2m28s"}},
		},
		KubeletMessage: "PLEG is not healthy: pleg was last seen active 3m0s ago; threshold is 3m0s",
		Next:           "`kill -CONT 4711` continues the stopped shim (containerd-shim) and with it all that waits.",
	}
	s.Steps = health.Steps(&s.Facts, &s.Verdict)
	return s
}

// Recent are ten minutes that end with a stall of the length of s's, if it has one.
func Recent(s *health.Snapshot) view.Recent {
	r := view.Recent{From: s.At.Add(-10 * time.Minute), Bin: 5 * time.Second, Bins: make([]view.RelistBin, view.HistoryBins)}
	for i := range r.Bins {
		at := r.From.Add(time.Duration(i+1) * r.Bin)
		r.Bins[i] = view.RelistBin{Slowest: time.Duration(9+i*7%13) * time.Millisecond, Relists: 5, State: health.StateHealthy}
		if s.LastSeen.Before(at) && s.State != health.StateHealthy {
			r.Bins[i] = view.RelistBin{State: s.State}
			if at.Sub(s.LastSeen) < 3*time.Minute {
				r.Bins[i].State = health.StateDegraded
			}
		}
	}
	return r
}

// IncidentID is the id of Incident.
const IncidentID = "20261121T030245Z-0a1b2c"

// Incident is the incident of unhealthy's node.
func Incident() *incident.Incident {
	moment := func(s health.Snapshot, offset time.Duration, previous *health.Verdict) incident.Moment {
		s.At, s.Previous, s.PlegdVersion, s.Node = T0.Add(offset-80*time.Second), previous, "", ""
		return incident.Moment{Offset: offset.Seconds(), Snapshot: &s}
	}
	before, bad, worse := Healthy(), Degraded(), Unhealthy()
	closed := T0
	one := &incident.Incident{
		Summary: incident.Summary{
			SchemaVersion: incident.SchemaVersion, PlegdVersion: "1.0.0", ID: IncidentID, Outcome: incident.Recovered, Opened: Ago(80 * time.Second), Closed: &closed,
			Duration: 80, State: health.StateUnhealthy, Reason: "PodInspectionStall", Stored: true,
			Reasons: []incident.ReasonTimes{
				{ID: "PodInspectionStall", Severity: health.SeverityCritical, Last: 47.25, Active: 47.5, Primary: 47.5},
				{ID: "ShimStuck", Severity: health.SeverityWarning, Last: 47.25, Active: 47.5},
				{ID: "RuntimeUnresponsive", Severity: health.SeverityCritical, First: 47.5, Last: 79.75, Active: 32.5, Primary: 32.5},
			},
		},
		Updated:        T0,
		KubeletMessage: worse.Verdict.KubeletMessage, Endpoint: worse.Facts.Endpoint.Path, Runtime: worse.Facts.Runtime,
		Ending: []string{"containerd, pid 812, was stopped and was continued. It was not restarted."},
		Relists: []health.RelistResult{
			{Start: Ago(82 * time.Second), End: Ago(82*time.Second - 12*time.Millisecond), ListPodSandbox: 3100 * time.Microsecond, ListContainers: 4200 * time.Microsecond, Serial: 21 * time.Millisecond, Changed: 2, Inspected: 2, Slowest: bad.Facts.Relist.Slowest[:1]},
		},
		Timeline: []incident.Moment{
			moment(bad, 0, &before.Verdict), moment(worse, 47500*time.Millisecond, &bad.Verdict), moment(before, 80*time.Second, &worse.Verdict),
		},
	}
	return one
}

// StalledIncident is the incident of a node whose list waited for a stopped shim until
// the node was NotReady, and that somebody continued.
func StalledIncident() *incident.Incident {
	one := Incident()
	before, bad, worse, after := Healthy(), Stalled(), Stalled(), Healthy()
	worse.State, worse.RulesOK, worse.NodeReady, worse.PLEGHealthy, worse.SyncLoopAllowed = health.StateUnhealthy, false, false, false, false
	worse.RulesFailIn, worse.NotReadyIn, worse.NotReadyInLatest = new(time.Duration), new(time.Duration), new(time.Duration)
	back, latest := 2*time.Second, 12*time.Second
	after.NodeReady, after.ReadyIn, after.ReadyInLatest = false, &back, &latest
	began := T0.Add(-4 * time.Minute)
	moment := func(s health.Snapshot, offset time.Duration) incident.Moment {
		s.At, s.PlegdVersion, s.Node = began.Add(offset), "", ""
		if f := s.Facts.Relist.InFlight; f != nil {
			in := *f
			in.Start, in.PhaseStart = began.Add(-1500*time.Millisecond), began.Add(-1500*time.Millisecond)
			s.Facts.Relist.InFlight = &in
		}
		return incident.Moment{Offset: offset.Seconds(), Snapshot: &s}
	}
	one.Reason, one.Opened, one.Duration = "ShimStuck", began, 240
	one.Reasons = []incident.ReasonTimes{
		{ID: "RuntimeListStall", Severity: health.SeverityCritical, Last: 238, Active: 238, Primary: 2},
		{ID: "ShimStuck", Severity: health.SeverityCritical, First: 2, Last: 238, Active: 236, Primary: 236},
	}
	stall := Stalled()
	stall.Reason, stall.Symptom, stall.Chain, stall.Culprit, stall.Active = "RuntimeListStall", "", nil, nil, stall.Active[1:]
	ready, until := 175*time.Second, 186*time.Second
	stall.NotReadyIn, stall.NotReadyInLatest = &ready, &until
	one.Timeline = []incident.Moment{moment(stall, 0), moment(bad, 2*time.Second), moment(worse, 184*time.Second), moment(after, 240*time.Second)}
	one.Timeline[0].Snapshot.Previous = &before.Verdict
	one.Ending = []string{"containerd-shim, pid 4711, is no longer stopped."}
	one.Relists = nil
	for i := range 30 {
		start := began.Add(time.Duration(i-33) * 1012 * time.Millisecond)
		one.Relists = append(one.Relists, health.RelistResult{Start: start, End: start.Add(time.Duration(9+i*7%13) * time.Millisecond), ListPodSandbox: 3 * time.Millisecond, ListContainers: 4 * time.Millisecond})
	}
	return one
}
