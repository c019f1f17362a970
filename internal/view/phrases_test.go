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
		{"an unidentified client", func(e *health.Evidence) {
			e.Connections.Stuck = []health.StuckClient{{Since: viewtest.Ago(9 * time.Second)}}
		}, "Clients", "an unidentified client has not read for 9.0s: 0 B unread, 0 B unsent"},
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

// TestKubeletWords: what the modelled kubelet has written and will write.
func TestKubeletWords(t *testing.T) {
	from, by := 9*time.Second, 11*time.Second
	for _, tt := range []struct {
		name   string
		change func(*health.Snapshot)
		want   string
	}{
		{"well", func(*health.Snapshot) {}, "would call this node Ready"},
		{"a hang has ended", func(s *health.Snapshot) { s.ReadyIn, s.ReadyInLatest = &from, &by },
			"may have called this node NotReady when the runtime answered again, until its next status update, in 9s to 11s"},
		{"it is silent", func(s *health.Snapshot) {
			s.Facts.NodeStatus, s.KubeletMessage = &health.NodeStatus{Unknown: true}, "Kubelet stopped posting node status."
		}, "writes nothing; the node controller's message will be: Kubelet stopped posting node status."},
		{"it is silent and Unknown", func(s *health.Snapshot) {
			s.Facts.NodeStatus, s.NodeReady = &health.NodeStatus{Unknown: true, NotReady: true}, false
			s.KubeletMessage = "Kubelet stopped posting node status."
		}, "writes nothing; the node controller's message: Kubelet stopped posting node status."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := viewtest.Healthy()
			tt.change(&s)
			if got := view.Kubelet(&s); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
