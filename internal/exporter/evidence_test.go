package exporter

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/health"
)

func TestAcceptFailure(t *testing.T) {
	silent := health.Probe{At: t0, Stage: health.StageSettings, Cause: health.CauseTimeout}
	full := health.Probe{At: t0, Stage: health.StageConnect, Cause: health.CauseQueueFull}
	process := func(open, limit int) *health.Process {
		return &health.Process{Alive: true, OpenFDs: open, MaxFDs: limit}
	}
	queue := func(length int, at time.Time) *health.Queue {
		return &health.Queue{At: at, Listening: true, Length: length, Limit: 4096}
	}
	for _, tt := range []struct {
		name     string
		probe    health.Probe
		evidence health.Evidence
		want     string
	}{
		{"answered", health.Probe{At: t0, OK: true}, health.Evidence{Process: process(256, 256)}, ""},
		{"no socket", health.Probe{At: t0, Stage: health.StageConnect, Cause: health.CauseMissing}, health.Evidence{}, ""},
		{"closed", health.Probe{At: t0, Stage: health.StageSettings, Cause: health.CauseClosed}, health.Evidence{}, ""},
		{"no version", health.Probe{At: t0, Stage: health.StageRPC, Cause: health.CauseTimeout}, health.Evidence{}, ""},
		{"no evidence", silent, health.Evidence{}, AcceptStalled},
		{"fds left", silent, health.Evidence{Process: process(255, 256), Queue: queue(3, t0.Add(time.Second))}, AcceptStalled},
		{"no fd left", silent, health.Evidence{Process: process(256, 256)}, AcceptFDExhausted},
		{"an inherited fd above the limit", silent, health.Evidence{Process: process(257, 256)}, AcceptFDExhausted},
		{"fds may not be read", silent, health.Evidence{Process: process(-1, -1)}, AcceptStalled},
		{"a process that is gone", silent, health.Evidence{Process: &health.Process{OpenFDs: 9, MaxFDs: 9}}, AcceptStalled},
		{"accepted, and silent", silent, health.Evidence{Process: process(256, 256), Queue: queue(0, t0.Add(time.Second))}, ""},
		{"the queue as it was before", silent, health.Evidence{Queue: queue(0, ago(time.Second))}, AcceptStalled},
		{"full", full, health.Evidence{}, AcceptQueueFull},
		{"full, and no fd left", full, health.Evidence{Process: process(256, 256)}, AcceptQueueFull},
	} {
		if got := AcceptFailure(tt.probe, &tt.evidence); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestEvidenceAbsent: what a source does not tell is absent, and what it tells
// beside that is there.
func TestEvidenceAbsent(t *testing.T) {
	s := healthy()
	e := &s.Facts.Evidence
	e.Queue = &health.Queue{At: t0}
	e.Process.OpenFDs, e.Process.Threads, e.Process.Start = -1, nil, time.Time{}
	e.Kubelet = &health.Kubelet{Seen: true, Refused: true}
	src := newFakeSource(s)
	reg, _ := newPedantic(src, fewReasons())
	families := gather(t, reg)
	for _, name := range []string{MetricQueueLength, MetricQueueLimit, MetricProcessOpenFDs, MetricProcessThreads, MetricProcessStart, MetricKubeletLastSeen} {
		if families[name] != nil {
			t.Errorf("%s is there and not known: %v", name, families[name])
		}
	}
	if v, ok := value(families, MetricKubeletUp); !ok || v != 0 {
		t.Errorf("%s = %v, %v; want 0", MetricKubeletUp, v, ok)
	}
	if v, ok := value(families, MetricProcessMaxFDs); !ok || v != 1<<20 {
		t.Errorf("%s = %v, %v", MetricProcessMaxFDs, v, ok)
	}
	if v, ok := value(families, MetricEvidenceUp, "docker"); ok {
		t.Errorf("a source that is not configured is up=%v", v)
	}

	e.Process.Alive, e.Process.OpenFDs = false, 12
	families = gather(t, reg)
	for _, name := range []string{MetricProcessOpenFDs, MetricProcessMaxFDs, MetricProcessThreads, MetricProcessStart} {
		if families[name] != nil {
			t.Errorf("%s is there and its process is gone", name)
		}
	}
}

// TestEvidenceCounters: a counter goes up and never back, whatever becomes of
// its source.
func TestEvidenceCounters(t *testing.T) {
	s := healthy()
	src := newFakeSource(s)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(newCollector(src, fewReasons(), clock))
	cgroup := func(at int, path string, total time.Duration) *health.Cgroup {
		return &health.Cgroup{At: t0.Add(time.Duration(at) * time.Second), Path: path, ThrottledTotal: total}
	}
	process := func(restarts int) *health.Process { return &health.Process{RestartsTotal: restarts} }
	for i, tt := range []struct {
		cgroup    *health.Cgroup
		process   *health.Process
		throttled float64
		restarts  float64
	}{
		{nil, nil, 0, 0},
		{cgroup(1, "/a", 500*time.Second), process(2), 0, 2}, // all that was before plegd looked
		{cgroup(2, "/a", 503*time.Second), process(2), 3, 2},
		{nil, nil, 3, 2},
		{cgroup(2, "/a", 503*time.Second), process(1), 3, 2}, // the same sample; an older one
		{cgroup(1, "/a", 500*time.Second), process(3), 3, 3}, // two scrapes in the wrong order
		{cgroup(3, "/a", 503500*time.Millisecond), process(4), 3.5, 4},
		{cgroup(4, "/a", 250*time.Millisecond), process(4), 3.75, 4}, // made anew by a restart
		{cgroup(5, "/b", 900*time.Second), process(4), 3.75, 4},      // another one
		{cgroup(6, "/b", 901*time.Second), process(4), 4.75, 4},
	} {
		s.Facts.Evidence.Cgroup, s.Facts.Evidence.Process = tt.cgroup, tt.process
		src.set(s)
		families := gather(t, reg)
		if v, ok := value(families, MetricCPUThrottled); !ok || v != tt.throttled {
			t.Errorf("%d: throttled %v, %v; want %v", i, v, ok, tt.throttled)
		}
		if v, ok := value(families, MetricProcessRestarts); !ok || v != tt.restarts {
			t.Errorf("%d: restarts %v, %v; want %v", i, v, ok, tt.restarts)
		}
	}
}

// TestSandboxIDs: an id leads to a pod, and is a name where names may not be
// shown.
func TestSandboxIDs(t *testing.T) {
	s := degraded()
	s.Verdict.Active[1].Evidence = []string{
		"sandbox " + sandboxID, "sandbox " + sandboxID[:13] + ", stopped", "sandbox " + sandboxID[:12],
	}
	s.Facts.Evidence.Sources["children"] = health.Source{Err: "reading the arguments of the shim of " + sandboxID}
	s.Facts.Evidence.Process.Lock = &health.LockWait{File: "/var/lib/containers/" + sandboxID + "/lock"}
	d := document(s, false)
	b, err := encodeJSON(d)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"json": string(b), "text": statusText(t, d, false), "page": pageText(t, d)} {
		if strings.Contains(text, sandboxID[:12]) {
			t.Errorf("%s holds the id of a sandbox:\n%s", what, text)
		}
	}
	c := d.Evidence.Children
	if c.Stuck[0].Sandbox != nil || c.Stuck[0].PID != 4711 || c.Stuck[0].Comm != "containerd-shim" {
		t.Errorf("%+v; want its pid and comm alone", c.Stuck[0])
	}
	if got := document(s, true).Evidence.Children.Stuck[0].Sandbox; got == nil || *got != sandboxID {
		t.Errorf("with names: sandbox %v", got)
	}
}

// TestStartingForecast: plegd does not know yet what the node's kubelet says.
func TestStartingForecast(t *testing.T) {
	d := document(starting(), true)
	const want = "one that started when plegd did would say: "
	for what, text := range map[string]string{"text": statusText(t, d, false), "page": pageText(t, d)} {
		if !strings.Contains(text, want) || strings.Contains(text, "this node NotReady") || strings.Contains(text, "Time left") {
			t.Errorf("%s:\n%s", what, text)
		}
	}
}

func TestEvidencePhrases(t *testing.T) {
	base := func() *StatusDocument { return document(healthy(), true) }
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
			e.Docker = &DockerDocument{ProbeDocument: &ProbeDocument{At: ago(time.Second), OK: true, RPCSeconds: new(0.002)}}
		}, phraseDocker, "answered, 1.0s ago; ping 2.0ms"},
		{"dockerd without a descriptor, its containerd stopped", func(e *EvidenceDocument) {
			e.Docker = &DockerDocument{
				ProbeDocument: &ProbeDocument{At: ago(time.Second), Stage: "rpc", Cause: "timeout", Failures: 3},
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
