package health

import (
	"fmt"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
)

func TestVersions(t *testing.T) {
	for _, tt := range []struct {
		name, version string
		needsFile     bool
	}{
		{"containerd", "1.7.24", true},
		{"containerd", "v1.7.23-k3s2", true},
		{"containerd", "1.7.24~ds1", true},
		{"containerd", "1.7", true},
		{"containerd", "1.6.20~ds1", false},
		{"containerd", "v2.0.0-rc.1", true},
		{"containerd", "1.10.0", true},
		{"containerd", "", false},
		{"containerd", "unknown", false},
		{"containerd", "1.x", false},
		{"containerd", "deadbeef", false},
		{"", "1.7.24", false},
		{"cri-o", "1.37.0", false},
		{"docker", "26.1.5", false},
	} {
		check.Equal(t, (facts.Runtime{Name: tt.name, Version: tt.version}).StatusNeedsFile(), tt.needsFile, "Status of %s %q needs a file", tt.name, tt.version)
	}
}

// exhausted makes the runtime have no descriptor left, while a connection waits.
func exhausted(f *facts.Facts, version string) {
	f.Runtime = facts.Runtime{Name: "containerd", Version: version}
	f.Evidence.Process = &facts.Process{At: t0, PID: 7, Alive: true, Start: t0.Add(-time.Hour), OpenFDs: 256, MaxFDs: 256, ExhaustedAt: t0}
	f.Evidence.Queue = &facts.Queue{At: t0, Listening: true, Length: 3, Limit: 4096, WaitingSince: t0.Add(-3 * time.Second)}
}

// TestStatusAfterDescriptors: a Status that failed for want of a descriptor says
// nothing of the runtime once one is free again.
func TestStatusAfterDescriptors(t *testing.T) {
	f := healthyFacts(t0)
	exhausted(&f, "1.7.24")
	f.Evidence.Queue = &facts.Queue{At: t0, Listening: true, Limit: 4096, FellAt: t0}
	f.Evidence.Process.OpenFDs = 40
	f.Status.LastErr = &facts.CallError{Operation: opStatus, Code: "Unknown", Message: "open uuid: too many open files"}
	f.Status.LastGood = t0.Add(-40 * time.Second)
	f.Calls = map[string]facts.Call{
		opStatus:          {LastOK: t0.Add(-40 * time.Second), LastFailed: t0.Add(-300 * time.Millisecond), LastErr: f.Status.LastErr},
		"list_containers": {LastOK: t0.Add(100 * time.Millisecond)},
	}
	f.Relist.AnsweredSince = t0.Add(-time.Hour)
	if v := Judge(&f, t0.Add(200*time.Millisecond), nil); v.Reason != AcceptFDExhausted || v.ActiveReason(RuntimeNotReady) != nil {
		t.Errorf("0.2 s after: %q, active %v; want AcceptFDExhausted without RuntimeNotReady", v.Reason, v.Active)
	} else if e := fmt.Sprint(v.Active[0].Evidence); !contains(e, "status fails: Unknown: open uuid") || !contains(e, "no descriptor was free until") {
		t.Errorf("0.2 s after: %s", e)
	}
	// The next Status fails too, and not for want of a descriptor.
	later := t0.Add(2 * time.Second)
	c := f.Calls[opStatus]
	c.LastFailed = later.Add(-100 * time.Millisecond)
	f.Calls[opStatus] = c
	f.Calls["list_containers"] = facts.Call{LastOK: later}
	f.Evidence.Process.At = later
	if v := Judge(&f, later, nil); v.ActiveReason(RuntimeNotReady) == nil {
		t.Errorf("Status still fails 2 s after: %q, want RuntimeNotReady", v.Reason)
	}
}

// TestKubeletAfterTheRuntime: the kubelet's own check fails in a runtime's fault
// and is well some seconds after it, which is no fault of the kubelet's.
func TestKubeletAfterTheRuntime(t *testing.T) {
	f := healthyFacts(t0)
	f.Calls = map[string]facts.Call{"version": {LastOK: t0}}
	f.Evidence.Kubelet = &facts.Kubelet{At: t0, Seen: true, FailedSince: t0.Add(-time.Minute), Detail: "syncloop failed"}
	for name, tt := range map[string]struct {
		change func(*facts.Facts)
		want   string
	}{
		"a look of a moment":                       {func(*facts.Facts) {}, KubeletStalled},
		"the runtime was stuck until a moment ago": {func(f *facts.Facts) { f.Relist.AnsweredSince = ago(time.Second) }, ""},
		"the runtime is good for long":             {func(f *facts.Facts) { f.Relist.AnsweredSince = ago(11 * time.Second) }, KubeletStalled},
		"Status failed a moment ago": {func(f *facts.Facts) {
			f.Calls[opStatus] = facts.Call{LastFailed: ago(2 * time.Second), LastOK: ago(time.Second)}
		}, ""},
		"Status was answered late": {func(f *facts.Facts) {
			f.Calls[opStatus] = facts.Call{LastOK: ago(time.Second), LastOKDuration: 20 * time.Second}
		}, ""},
		"an inspection of the kubelet's takes long": {func(f *facts.Facts) { f.Modelled.InspectingSince = ago(15 * time.Second) }, RelistSlow},
	} {
		f := f
		f.Calls = map[string]facts.Call{"version": {LastOK: t0}}
		tt.change(&f)
		named(t, name, &f, tt.want)
	}
}

// TestKubeletHangsBeforeItListens: a kubelet whose process runs and that does not listen is no
// kubelet to be started.
func TestKubeletHangsBeforeItListens(t *testing.T) {
	for name, tt := range map[string]struct {
		process *facts.KubeletProcess
		want    string
	}{
		"no process":                    {nil, KubeletDown},
		"a process that has run for 1m": {&facts.KubeletProcess{PID: 9, Started: ago(time.Minute)}, KubeletStalled},
		"a process that has just begun": {&facts.KubeletProcess{PID: 9, Started: ago(2 * time.Second)}, KubeletDown},
	} {
		f := healthyFacts(t0)
		f.Calls = map[string]facts.Call{"version": {LastOK: t0}}
		f.Evidence.Kubelet = &facts.Kubelet{At: t0, Seen: true, Refused: true, FailedSince: ago(30 * time.Second)}
		f.Evidence.KubeletProcess = tt.process
		named(t, name, &f, tt.want)
	}
}

// TestRelistsLess: --events=evented is right beside kubelets before 1.37 only.
func TestRelistsLess(t *testing.T) {
	for version, want := range map[string][2]bool{"v1.35.4": {true, true}, "v1.36.2": {true, true}, "v1.37.2": {false, true}, "": {}} {
		if less, known := (&facts.Kubelet{Version: version}).RelistsLess(); less != want[0] || known != want[1] {
			t.Errorf("%q: %t, known %t", version, less, known)
		}
	}
	if _, known := (*facts.Kubelet)(nil).RelistsLess(); known {
		t.Error("the version of no kubelet is known")
	}
}
