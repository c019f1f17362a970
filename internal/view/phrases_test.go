package view_test

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/viewtest"
)

func TestEvidenceRows(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(e *health.Evidence)
		label  string
		want   string
	}{
		{"nothing known", func(e *health.Evidence) { *e = health.Evidence{} }, "Process", ""},
		{"queue alone", func(e *health.Evidence) { e.Process = nil }, "Process", "queue 0 of 4096"},
		{"gone", func(e *health.Evidence) {
			e.Process.Alive, e.Queue = false, &health.Queue{}
		}, "Process", "pid 812 containerd is gone; nobody listens; 1 restart seen"},
		{"little may be read", func(e *health.Evidence) {
			e.Process.MaxFDs, e.Process.Threads, e.Process.RestartsTotal, e.Queue = -1, nil, 0, nil
		}, "Process", "pid 812 containerd, up 3d04h; fds 1263"},
		{"frozen and locked", func(e *health.Evidence) {
			e.Cgroup.Frozen, e.Process.RestartsTotal = true, 0
			e.Process.Lock = &health.LockWait{HolderPID: 7, HolderComm: "podman", File: "08:01:9"}
		}, "Process", "pid 812 containerd, up 3d04h; fds 1263 of 1048576; threads 15 S; queue 0 of 4096; its cgroup is frozen; waits for a lock on 08:01:9 of pid 7 podman"},
		{"a quiet node", func(*health.Evidence) {}, "Node", ""},
		{"no pressure files", func(e *health.Evidence) {
			*e.Node = health.Node{Files: 90, FilesMax: 100, Threads: 5, CPUSome: -1, IOSome: -1, MemorySome: -1}
		}, "Node", "files 90 of 100; threads 5"},
		{"busy", func(e *health.Evidence) { e.Node.CPUSome = 97.4 }, "Node",
			"pressure cpu 97% io 0%/0% memory 0%/0%; files 2144; threads 3120 of 63000"},
		{"a kubelet that is well", func(*health.Evidence) {}, "Healthz", ""},
		{"metrics that may not be read", func(e *health.Evidence) {
			e.Kubelet.Detail, e.Kubelet.LastSeen = "asking http://x: it answered 403", time.Time{}
		}, "Healthz", "asking http://x: it answered 403"},
		{"refused", func(e *health.Evidence) {
			*e.Kubelet = health.Kubelet{Refused: true, FailedSince: viewtest.Ago(12 * time.Second)}
		}, "Healthz", "the kubelet's own check fails for 12s"},
		{"no Docker", func(*health.Evidence) {}, "Docker", ""},
		{"Docker", func(e *health.Evidence) {
			e.Docker = &health.Docker{Probe: health.Probe{At: viewtest.Ago(time.Second), OK: true, RPC: 2 * time.Millisecond}}
		}, "Docker", "answered, 1.0s ago; ping 2.0ms"},
		{"dockerd without a descriptor, its containerd stopped", func(e *health.Evidence) {
			e.Docker = &health.Docker{
				Probe: health.Probe{At: viewtest.Ago(time.Second), Stage: "rpc", Cause: "timeout", Failures: 3},
				Daemon: &health.DockerProcess{
					Queue:   &health.Queue{Listening: true, Length: 2, Limit: 4096},
					Process: &health.Process{PID: 41, Comm: "dockerd", Alive: true, OpenFDs: 256, MaxFDs: 256},
				},
				Containerd: &health.DockerProcess{Socket: "/run/c.sock", Queue: &health.Queue{}, Process: &health.Process{PID: 42, Comm: "containerd"}},
			}
		}, "Docker", "failed at rpc: timeout, 3 in a row, 1.0s ago; pid 41 dockerd; fds 256 of 256; queue 2 of 4096; pid 42 containerd is gone; nobody listens on /run/c.sock"},
		{"all sources up", func(*health.Evidence) {}, "Missing", ""},
		{"two down", func(e *health.Evidence) {
			e.Sources["queue"], e.Sources["node"] = health.Source{Err: "b", Kept: true}, health.Source{Err: "a"}
		}, "Missing", "node: a; queue: b; its last sample still counts"},
	} {
		s := viewtest.Healthy()
		tt.change(&s.Facts.Evidence)
		got := ""
		for _, row := range view.EvidenceRows(&s) {
			if row.Label == tt.label {
				got = row.Text
			}
		}
		if got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// TestOutlook: what the kubelet does and what the API shows, as a prediction.
func TestOutlook(t *testing.T) {
	from, by, over := 52*time.Second, 64*time.Second, time.Duration(0)
	for _, tt := range []struct {
		name   string
		change func(*health.Snapshot)
		want   string
	}{
		{"healthy", func(*health.Snapshot) {}, "managing pods; the API shows Ready"},
		{"blind", func(s *health.Snapshot) { s.State = "unknown" }, "none: plegd cannot see the runtime, others may"},
		{"starting", func(s *health.Snapshot) { s.State, s.NodeReady = health.StateStarting, false }, "none yet: no relist has succeeded"},
		{"the rules will fail", func(s *health.Snapshot) { s.RulesFailIn, s.NotReadyIn, s.NotReadyInLatest = &from, &from, &by },
			"managing pods for another 52s; the API still shows Ready for 52s to 1m04s, if nothing changes"},
		{"the rules have failed", func(s *health.Snapshot) { s.RulesFailIn, s.NotReadyIn, s.NotReadyInLatest = &over, &from, &from },
			"not managing pods; the API still shows Ready for 52s, if nothing changes"},
		{"no pod network", func(s *health.Snapshot) {
			s.RulesFailIn, s.NotReadyIn, s.SyncLoopAllowed, s.NodeReady = &over, &over, true, false
		}, "the pod network is down; the API shows NotReady"},
		{"NotReady", func(s *health.Snapshot) {
			s.RulesFailIn, s.NotReadyIn, s.NodeReady, s.SyncLoopAllowed = &over, &over, false, false
		},
			"not managing pods; the API shows NotReady"},
		{"a hang has ended", func(s *health.Snapshot) { s.NodeReady, s.ReadyIn, s.ReadyInLatest = false, &from, &by },
			"managing pods; the API shows NotReady until the next status update, in 52s to 1m04s"},
		{"a silent kubelet", func(s *health.Snapshot) { s.Facts.NodeStatus = &health.NodeStatus{Unknown: true} },
			"managing pods; the API shows Ready; the kubelet writes no status"},
	} {
		s := viewtest.Healthy()
		s.SyncLoopAllowed = tt.name != "the rules have failed"
		tt.change(&s)
		if got := view.Outlook(&s); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
