package health

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

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
