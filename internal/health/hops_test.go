package health

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
)

// behindDocker are the facts of a healthy node whose runtime is cri-dockerd, in front
// of dockerd and dockerd's containerd.
func behindDocker(now time.Time) facts.Facts {
	f := healthyFacts(now)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	f.Endpoint.Path, f.Runtime = "/run/cri-dockerd.sock", facts.Runtime{Name: "docker", Version: "26.1.5"}
	f.Relist.Lists = []time.Duration{4 * time.Millisecond, 4 * time.Millisecond}
	f.Calls = map[string]facts.Call{"list_containers": {LastOK: now, LastOKDuration: 2 * time.Millisecond}}
	process := func(pid int, comm string) *facts.Process {
		return &facts.Process{At: now, PID: pid, Comm: comm, Alive: true, Start: ago(time.Hour), OpenFDs: 20, MaxFDs: 1024, Threads: map[string]int{"S": 9}}
	}
	hop := func(socket string, pid int, comm string) facts.Hop {
		return facts.Hop{
			Socket: socket, Process: process(pid, comm), Cgroup: &facts.Cgroup{At: now, Path: "/system.slice/" + comm + ".service"},
			Queue:    &facts.Queue{At: now, Listening: true, Inode: 7, ListeningSince: ago(time.Hour), Limit: 4096},
			Listener: &facts.Listener{At: now, Inode: 7, PID: pid, Comm: comm, Since: ago(time.Hour)},
			Answer:   &facts.HopProbe{Probe: facts.Probe{At: now, OK: true, RPC: time.Millisecond}, AnsweredAt: now, OKSince: ago(time.Hour)},
		}
	}
	f.Evidence.Process = process(700, "cri-dockerd")
	f.Evidence.Hops = []facts.Hop{hop("/run/docker.sock", 812, "dockerd"), hop("/run/docker/containerd.sock", 840, "containerd")}
	f.Evidence.Hops[0].Process.Program = "dockerd"
	f.Evidence.Hops[0].Caution = "A restart ends every container."
	return f
}

// fails makes the probe of a hop fail since a time ago.
func hopFails(h *facts.Hop, stage facts.Stage, cause facts.Cause, ago time.Duration) {
	at := t0.Add(-ago)
	h.Answer.Probe = facts.Probe{At: at, Stage: stage, Cause: cause, FailedSince: at, Failures: 1, Detail: "detail"}
	h.Answer.AnsweredAt, h.Answer.OKSince = at.Add(-time.Second), time.Time{}
}

// TestHops: each reason that holds for the runtime's process and socket holds for each
// hop behind it, and names that hop.
func TestHops(t *testing.T) {
	waiting := func(h *facts.Hop) {
		hopFails(h, facts.StageSettings, facts.CauseTimeout, 2*time.Second)
		h.Queue.Length, h.Queue.WaitingSince = 3, t0.Add(-2*time.Second)
	}
	blocked := func(channel string) func(*facts.Hop) {
		return func(h *facts.Hop) {
			h.Process.Blocked = []facts.BlockedThread{{TID: 901, Since: t0.Add(-12 * time.Second), Channel: channel}}
		}
	}
	for _, tt := range []struct {
		name, want string
		severity   facts.Severity
		change     func(*facts.Hop)
	}{
		{"no descriptor, a client waits", AcceptFDExhausted, facts.SeverityCritical, func(h *facts.Hop) { waiting(h); h.Process.OpenFDs = 1024 }},
		{"no descriptor, nobody waits", FDsRunningOut, facts.SeverityWarning, func(h *facts.Hop) { h.Process.OpenFDs = 1024 }},
		{"accepts nobody", AcceptStalled, facts.SeverityCritical, waiting},
		{"stopped", RuntimeFrozen, facts.SeverityCritical, func(h *facts.Hop) { waiting(h); h.Process.Threads = map[string]int{"T": 9} }},
		{"stopped and continued in turn", RuntimeFrozen, facts.SeverityCritical, func(h *facts.Hop) {
			h.Process.StoppedAt, h.Process.Stops = t0.Add(-time.Second), []time.Time{t0.Add(-4 * time.Second), t0.Add(-2 * time.Second)}
		}},
		{"frozen", RuntimeFrozen, facts.SeverityCritical, func(h *facts.Hop) { waiting(h); h.Cgroup.Frozen = true }},
		{"CPU quota", RuntimeThrottled, facts.SeverityWarning, func(h *facts.Hop) { h.Answer.RPC, h.Cgroup.Throttled = 800*time.Millisecond, 0.9 }},
		{"memory limit", RuntimeMemoryLimited, facts.SeverityWarning, func(h *facts.Hop) {
			blocked("mem_cgroup_handle_over_high")(h)
			h.Cgroup.MemoryLimits = []facts.MemoryLimit{{Path: "/", Usage: 99, Max: 100}}
		}},
		{"a process is killed for memory", RuntimeMemoryLimited, facts.SeverityWarning, func(h *facts.Hop) {
			h.Cgroup.MemoryLimits = []facts.MemoryLimit{{Path: "/k", Max: 100, OOMKills: 2, OOMKilledAt: t0.Add(-5 * time.Second)}}
		}},
		{"tasks limit", KernelLimitReached, facts.SeverityWarning, func(h *facts.Hop) { h.Cgroup.PIDs, h.Cgroup.PIDsMax = 100, 100 }},
		{"a lock while it starts", RuntimeStorageLocked, facts.SeverityCritical, func(h *facts.Hop) {
			hopFails(h, facts.StageConnect, facts.CauseRefused, 2*time.Second)
			h.Process.Start = t0.Add(-3 * time.Second)
			h.Process.Lock = &facts.LockWait{HolderPID: 5, HolderComm: "flock", File: "/var/lib/x/meta.db", Since: t0.Add(-2 * time.Second)}
		}},
		{"a disk", RuntimeStorageStall, facts.SeverityWarning, blocked("io_schedule")},
		{"a pipe that nobody reads", RuntimeThreadStuck, facts.SeverityWarning, blocked("anon_pipe_write")},
		{"restarts", RuntimeRestarting, facts.SeverityCritical, func(h *facts.Hop) {
			h.Process.Restarts = []time.Time{t0.Add(-30 * time.Second), t0.Add(-20 * time.Second), t0.Add(-10 * time.Second)}
		}},
		{"its socket is gone", RuntimeSocketMissing, facts.SeverityCritical, func(h *facts.Hop) {
			hopFails(h, facts.StageConnect, facts.CauseMissing, 4*time.Second)
			h.Queue, h.Listener, h.Process.Alive = &facts.Queue{At: t0}, nil, false
		}},
		{"nobody listens", RuntimeNotListening, facts.SeverityCritical, func(h *facts.Hop) {
			hopFails(h, facts.StageConnect, facts.CauseRefused, 4*time.Second)
			h.Queue, h.Listener, h.Process.Alive = &facts.Queue{At: t0}, nil, false
		}},
		{"nobody listens for a moment", "", "", func(h *facts.Hop) { hopFails(h, facts.StageConnect, facts.CauseRefused, 2*time.Second) }},
		{"its socket's file alone is gone", RuntimeSocketUnlinked, facts.SeverityCritical, func(h *facts.Hop) { hopFails(h, facts.StageConnect, facts.CauseMissing, 4*time.Second) }},
		{"full queue", AcceptStalled, facts.SeverityCritical, func(h *facts.Hop) {
			hopFails(h, facts.StageConnect, facts.CauseQueueFull, 4*time.Second)
			h.Queue.Length = 4097
		}},
		{"accepts and is silent", RuntimeUnresponsive, facts.SeverityCritical, func(h *facts.Hop) { hopFails(h, facts.StageSettings, facts.CauseTimeout, 3*time.Second) }},
		{"silent for a moment", "", "", func(h *facts.Hop) { hopFails(h, facts.StageSettings, facts.CauseTimeout, 1500*time.Millisecond) }},
		{"not permitted to plegd", "", "", func(h *facts.Hop) { hopFails(h, facts.StageConnect, facts.CausePermissionDenied, time.Minute) }},
		{"another program at its socket", RuntimeSocketTakenOver, facts.SeverityCritical, func(h *facts.Hop) {
			h.Listener.PID, h.Listener.Comm, h.Listener.Inode, h.Queue.Inode, h.Listener.Since = 66, "python3", 8, 8, t0.Add(-3*time.Second)
		}},
		{"only another program at its socket", RuntimeSocketTakenOver, facts.SeverityCritical, func(h *facts.Hop) {
			hopFails(h, facts.StageRPC, facts.CauseProtocol, 2*time.Second)
			h.Process, h.Listener.PID, h.Listener.Comm = nil, 66, "python3"
		}},
	} {
		for i, name := range []string{"pid 812 (dockerd)", "pid 840 (containerd)"} {
			f := behindDocker(t0)
			h := &f.Evidence.Hops[i]
			tt.change(h)
			v := Judge(&f, t0, nil)
			if tt.want == "" {
				check.Equal(t, v.Reason, "", "%s at hop %d: %v", tt.name, i, v.Active)
				continue
			}
			if v.Reason != tt.want || v.Active[0].Severity != tt.severity || v.Hop != h.Socket {
				t.Errorf("%s at hop %d: %q at %q: %v", tt.name, i, v.Reason, v.Hop, v.Active)
				continue
			}
			if h.Process == nil {
				name = "the process at " + h.Socket
			}
			if !strings.Contains(v.Active[0].Evidence[0], name) || !strings.Contains(v.Next, name) || !strings.Contains(v.Next, h.Caution) {
				t.Errorf("%s at hop %d: evidence %q, next %q", tt.name, i, v.Active[0].Evidence, v.Next)
			}
			if e := strings.Join(v.Active[0].Evidence, "; "); h.Process == nil && (len(v.Active) > 1 || !strings.Contains(e, "rpc failed: detail; a new connection to "+h.Socket+" reaches pid 66 (python3)")) {
				t.Errorf("%s at hop %d: evidence %q", tt.name, i, e)
			}
			kills := h.Cgroup.MemoryLimits != nil && h.Cgroup.MemoryLimits[0].OOMKills > 0
			if kills && (v.Culprit == nil || v.Culprit.Name != h.Cgroup.MemoryLimits[0].Path) {
				t.Errorf("%s at hop %d: culprit %+v", tt.name, i, v.Culprit)
			}
			restart := !strings.HasPrefix(reasonOf(v.Reason).Restart, "No.")
			if h.Caution != "" && restart && !slices.Contains(v.Steps, liveRestore) {
				t.Errorf("%s at hop %d: steps %q", tt.name, i, v.Steps)
			}
			if pid := Subject(f.At(v.Hop), v.Reason); tt.want == RuntimeFrozen && pid != h.Process.PID {
				t.Errorf("%s at hop %d: subject %d", tt.name, i, pid)
			}
		}
	}
}

// TestCallsWaitForHops: while a hop has yet to answer, a call that hangs or fails is not
// the runtime's own fault.
func TestCallsWaitForHops(t *testing.T) {
	hanging := func(f *facts.Facts) {
		f.Relist.InFlight = &facts.InFlight{Start: t0.Add(-2 * time.Second), Phase: facts.PhaseListContainers, PhaseStart: t0.Add(-2 * time.Second)}
		f.Calls = map[string]facts.Call{"status": {LastOK: t0.Add(-time.Second)}}
	}
	for _, tt := range []struct {
		name, want, hop string
		change          func(*facts.Facts)
	}{
		{"a list hangs, all hops answer", RuntimeListStall, "", hanging},
		{"a list hangs, dockerd is asked", "", "", func(f *facts.Facts) {
			hanging(f)
			f.Evidence.Hops[0].Answer.At = t0.Add(-1700 * time.Millisecond)
		}},
		{"a list hangs, dockerd is silent", RuntimeUnresponsive, "/run/docker.sock", func(f *facts.Facts) {
			hanging(f)
			hopFails(&f.Evidence.Hops[0], facts.StageSettings, facts.CauseTimeout, 1100*time.Millisecond)
		}},
		{"Status fails before dockerd is asked", "", "", func(f *facts.Facts) {
			f.Status.LastErr = &facts.CallError{Operation: "status", Code: "Unknown", Message: "Cannot connect to the Docker daemon"}
			f.Calls["status"] = facts.Call{LastOK: t0.Add(-6 * time.Second), LastFailed: t0.Add(-500 * time.Millisecond)}
			f.Evidence.Hops[0].Answer.At = t0.Add(-700 * time.Millisecond)
		}},
		{"nobody ever listened at the usual path", "", "", func(f *facts.Facts) {
			f.Evidence.Hops = []facts.Hop{{Socket: "/run/docker.sock", Answer: &facts.HopProbe{}}}
			hopFails(&f.Evidence.Hops[0], facts.StageConnect, facts.CauseMissing, time.Minute)
			f.Evidence.Hops[0].Answer.AnsweredAt = time.Time{}
		}},
		{"calls fail, nobody ever listened at the usual path", RuntimeSocketMissing, "/run/docker.sock", func(f *facts.Facts) {
			f.Evidence.Hops = f.Evidence.Hops[:1]
			f.Evidence.Hops[0] = facts.Hop{Socket: "/run/docker.sock", Answer: &facts.HopProbe{}}
			hopFails(&f.Evidence.Hops[0], facts.StageConnect, facts.CauseMissing, time.Minute)
			f.Evidence.Hops[0].Answer.AnsweredAt = time.Time{}
			f.Relist.Failures, f.Relist.Last.Err = 3, &facts.CallError{Operation: "list_podsandbox", Code: "Unknown", Message: "Cannot connect"}
		}},
	} {
		f := behindDocker(t0)
		tt.change(&f)
		if v := Judge(&f, t0, nil); v.Reason != tt.want || v.Hop != tt.hop {
			t.Errorf("%s: %q at %q: %v", tt.name, v.Reason, v.Hop, v.Active)
		}
	}
}

// TestHopWaitsForPlugin: a plugin that dockerd waits for is the cause of the hang, with its step; dockerd's own
// containerd is none.
func TestHopWaitsForPlugin(t *testing.T) {
	for pid, want := range map[int]string{900: RuntimePeerStuck, 840: RuntimeUnresponsive} {
		f := behindDocker(t0)
		began := t0.Add(-6 * time.Second)
		f.Relist.InFlight = &facts.InFlight{Start: began, Phase: facts.PhaseListContainers, PhaseStart: began}
		f.Relist.LastSeen = began
		f.Calls = answeredCalls()
		hopFails(&f.Evidence.Hops[0], facts.StageSettings, facts.CauseTimeout, 6*time.Second)
		f.Evidence.Chain = chainOf(
			facts.Link{Kind: facts.KindPod, Name: "a/b", State: facts.LinkUnanswered},
			facts.Link{Kind: facts.KindProcess, Name: "dockerd", PID: 812, State: facts.LinkPeer},
			facts.Link{Kind: facts.KindProcess, Name: "authz", PID: pid, State: facts.LinkStopped},
		)
		v := Judge(&f, t0, nil)
		isCause := v.Symptom == RuntimeUnresponsive && strings.Contains(v.Next, "kill -CONT 900") && v.Active[0].Severity == facts.SeverityCritical
		if v.Reason != want || isCause != (want == RuntimePeerStuck) {
			t.Errorf("waits for pid %d: %s behind %q: %s", pid, v.Reason, v.Symptom, v.Next)
		}
	}
}
