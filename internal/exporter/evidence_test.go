package exporter

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/viewtest"
)

func TestAcceptFailure(t *testing.T) {
	silent := facts.Probe{At: viewtest.T0, Stage: facts.StageSettings, Cause: facts.CauseTimeout}
	full := facts.Probe{At: viewtest.T0, Stage: facts.StageConnect, Cause: facts.CauseQueueFull}
	process := func(open, limit int) *facts.Process {
		return &facts.Process{Alive: true, OpenFDs: open, MaxFDs: limit}
	}
	queue := func(length int, at time.Time) *facts.Queue {
		return &facts.Queue{At: at, Listening: true, Length: length, Limit: 4096}
	}
	for _, tt := range []struct {
		name     string
		probe    facts.Probe
		evidence facts.Evidence
		want     string
	}{
		{"answered", facts.Probe{At: viewtest.T0, OK: true}, facts.Evidence{Hop: facts.Hop{Process: process(256, 256)}}, ""},
		{"no socket", facts.Probe{At: viewtest.T0, Stage: facts.StageConnect, Cause: facts.CauseMissing}, facts.Evidence{}, ""},
		{"no evidence", silent, facts.Evidence{}, AcceptStalled},
		{"fds left", silent, facts.Evidence{Hop: facts.Hop{Process: process(255, 256), Queue: queue(3, viewtest.T0.Add(time.Second))}}, AcceptStalled},
		{"no fd left", silent, facts.Evidence{Hop: facts.Hop{Process: process(256, 256)}}, AcceptFDExhausted},
		{"fds may not be read", silent, facts.Evidence{Hop: facts.Hop{Process: process(-1, -1)}}, AcceptStalled},
		{"a process that is gone", silent, facts.Evidence{Hop: facts.Hop{Process: &facts.Process{OpenFDs: 9, MaxFDs: 9}}}, AcceptStalled},
		{"accepted, and silent", silent, facts.Evidence{Hop: facts.Hop{Process: process(256, 256), Queue: queue(0, viewtest.T0.Add(time.Second))}}, ""},
		{"the queue as it was before", silent, facts.Evidence{Hop: facts.Hop{Queue: queue(0, viewtest.Ago(time.Second))}}, AcceptStalled},
		{"full", full, facts.Evidence{}, AcceptQueueFull},
	} {
		check.Equal(t, acceptFailure(tt.probe, &tt.evidence), tt.want, "%s", tt.name)
	}
}

// TestEvidenceCounters: a counter never decreases, also if its source resets.
func TestEvidenceCounters(t *testing.T) {
	s := viewtest.Healthy()
	reg, m := newPedantic(viewtest.NewSource(s))
	cgroup := func(at int, path string, total time.Duration) *facts.Cgroup {
		return &facts.Cgroup{At: viewtest.T0.Add(time.Duration(at) * time.Second), Path: path, ThrottledTotal: total}
	}
	process := func(restarts int) *facts.Process { return &facts.Process{RestartsTotal: restarts} }
	for i, tt := range []struct {
		cgroup    *facts.Cgroup
		process   *facts.Process
		throttled float64
		restarts  float64
	}{
		{nil, nil, 0, 0},
		{cgroup(1, "/a", 500*time.Second), process(2), 0, 2}, // all that was before plegd looked
		{cgroup(2, "/a", 503*time.Second), process(2), 3, 2},
		{nil, nil, 3, 2},
		{cgroup(2, "/a", 503*time.Second), process(1), 3, 2}, // the same sample; an older one
		{cgroup(1, "/a", 500*time.Second), process(3), 3, 3}, // another sample, an older cgroup
		{cgroup(3, "/a", 503500*time.Millisecond), process(4), 3.5, 4},
		{cgroup(4, "/a", 250*time.Millisecond), process(4), 3.75, 4}, // made again by a restart
		{cgroup(5, "/b", 900*time.Second), process(4), 3.75, 4},      // another one
		{cgroup(6, "/b", 901*time.Second), process(4), 4.75, 4},
	} {
		s.Facts.Evidence.Cgroup, s.Facts.Evidence.Process = tt.cgroup, tt.process
		m.Observe(&s)
		families := gather(t, reg)
		if v, ok := value(families, "pleg_runtime_cpu_throttled_seconds_total"); !ok || v != tt.throttled {
			t.Errorf("%d: throttled %v, %v; want %v", i, v, ok, tt.throttled)
		}
		if v, ok := value(families, "pleg_runtime_process_restarts_total"); !ok || v != tt.restarts {
			t.Errorf("%d: restarts %v, %v; want %v", i, v, ok, tt.restarts)
		}
	}
}
