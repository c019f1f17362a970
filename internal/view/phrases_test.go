package view

import (
	"encoding/json"
	"os"
	"testing"
	"time"
)

func TestEvidencePhrases(t *testing.T) {
	base := func() *StatusDocument { return healthyStatus(t) }
	for _, tt := range []struct {
		name   string
		change func(e *EvidenceDocument)
		phrase func(*StatusDocument) string
		want   string
	}{
		{"nothing known", func(e *EvidenceDocument) { *e = EvidenceDocument{} }, phraseProcess, ""},
		{"queue alone", func(e *EvidenceDocument) { e.Process = nil }, phraseProcess, "queue 0 of 4096"},
		{"gone", func(e *EvidenceDocument) {
			e.Process.Alive, e.Queue = false, &QueueDocument{}
		}, phraseProcess, "pid 812 containerd is gone; nobody listens; 1 restart seen"},
		{"little may be read", func(e *EvidenceDocument) {
			e.Process.MaxFDs, e.Process.Threads, e.Process.Restarts, e.Queue = nil, nil, 0, nil
		}, phraseProcess, "pid 812 containerd, up 3d04h; fds 1263"},
		{"frozen and locked", func(e *EvidenceDocument) {
			e.Cgroup.Frozen, e.Process.Restarts = true, 0
			e.Process.Lock = &LockDocument{HolderPID: 7, HolderComm: "podman", File: "08:01:9"}
		}, phraseProcess, "pid 812 containerd, up 3d04h; fds 1263 of 1048576; threads 15 S; queue 0 of 4096; its cgroup is frozen; waits for a lock on 08:01:9 of pid 7 podman"},
		{"a quiet node", func(*EvidenceDocument) {}, phraseNode, ""},
		{"no pressure files", func(e *EvidenceDocument) {
			*e.Node = NodeDocument{Files: 90, FilesMax: 100, Threads: 5}
		}, phraseNode, "files 90 of 100; threads 5"},
		{"busy", func(e *EvidenceDocument) { e.Node.CPUSome = new(97.4) }, phraseNode,
			"pressure cpu 97% io 0%/0% memory 0%/0%; files 2144; threads 3120 of 63000"},
		{"a kubelet that is well", func(*EvidenceDocument) {}, phraseHealthz, ""},
		{"metrics that may not be read", func(e *EvidenceDocument) {
			e.Kubelet.Detail, e.Kubelet.LastSeenAge = "asking http://x: it answered 403", nil
		}, phraseHealthz, "asking http://x: it answered 403"},
		{"refused", func(e *EvidenceDocument) {
			*e.Kubelet = KubeletDocument{Refused: true, FailedSeconds: new(12.0)}
		}, phraseHealthz, "the kubelet's own check fails for 12s"},
		{"no Docker", func(*EvidenceDocument) {}, phraseDocker, ""},
		{"Docker", func(e *EvidenceDocument) {
			e.Docker = &DockerDocument{ProbeDocument: &ProbeDocument{At: phrasesNow.Add(-time.Second), OK: true, RPCSeconds: new(0.002)}}
		}, phraseDocker, "answered, 1.0s ago; ping 2.0ms"},
		{"dockerd without a descriptor, its containerd stopped", func(e *EvidenceDocument) {
			e.Docker = &DockerDocument{
				ProbeDocument: &ProbeDocument{At: phrasesNow.Add(-time.Second), Stage: "rpc", Cause: "timeout", Failures: 3},
				Daemon: &DockerProcessDocument{
					Queue:   &QueueDocument{Listening: true, Length: new(2), Limit: new(4096)},
					Process: &ProcessDocument{PID: 41, Comm: "dockerd", Alive: true, OpenFDs: new(256), MaxFDs: new(256)},
				},
				Containerd: &DockerProcessDocument{Socket: "/run/c.sock", Queue: &QueueDocument{}, Process: &ProcessDocument{PID: 42, Comm: "containerd"}},
			}
		}, phraseDocker, "failed at rpc: timeout, 3 in a row, 1.0s ago; pid 41 dockerd; fds 256 of 256; queue 2 of 4096; pid 42 containerd is gone; nobody listens on /run/c.sock"},
		{"a client that cannot be told", func(e *EvidenceDocument) {
			e.Connections.Stuck = []StuckClientDocument{{Seconds: 9}}
		}, phraseClients, "one that cannot be told has not read for 9.0s: 0 B unread, 0 B unsent"},
		{"all sources up", func(*EvidenceDocument) {}, phraseDown, ""},
		{"two down", func(e *EvidenceDocument) {
			e.Sources["queue"], e.Sources["node"] = SourceDocument{Error: "b"}, SourceDocument{Error: "a"}
		}, phraseDown, "node: a; queue: b"},
	} {
		d := base()
		tt.change(&d.Evidence)
		if got := tt.phrase(d); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// phrasesNow is the moment of the example in the documentation.
var phrasesNow = time.Date(2026, 11, 21, 3, 4, 5, 250_000_000, time.UTC)

// healthyStatus is the status of a healthy node.
func healthyStatus(t *testing.T) *StatusDocument {
	t.Helper()
	b, err := os.ReadFile("testdata/healthy.json")
	if err != nil {
		t.Fatal(err)
	}
	var d StatusDocument
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}
