package health

import (
	"testing"
	"time"
)

// TestKubeletAfterTheRuntime: the kubelet's own check fails in a runtime's fault
// and is well some seconds after it, which is no fault of the kubelet's.
func TestKubeletAfterTheRuntime(t *testing.T) {
	f := healthyFacts(t0)
	f.Calls = map[string]Call{"version": {LastOK: t0}}
	f.Evidence.Kubelet = &Kubelet{At: t0, Seen: true, FailedSince: t0.Add(-time.Minute), Detail: "syncloop failed"}
	before := func(state State, good time.Duration) *Verdict {
		v := &Verdict{State: state, Predicted: Predicted{NodeReady: true}, Since: t0.Add(-time.Hour)}
		if good > 0 {
			v.Signals = []SignalState{{Name: callsGood, Since: t0.Add(-good)}}
		}
		return v
	}
	for _, tt := range []struct {
		name     string
		previous *Verdict
		want     string
	}{
		{"a look of a moment", nil, KubeletStalled},
		{"the runtime was stuck until a moment ago", before(StateHealthy, time.Second), ""},
		{"the runtime is good for long", before(StateHealthy, 11*time.Second), KubeletStalled},
		{"and something else is wrong with the node", before(StateDegraded, time.Hour), KubeletStalled},
		{"the runtime is stuck", before(StateDegraded, 0), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if v := Judge(&f, t0, tt.previous); v.Reason != tt.want {
				t.Errorf("%q, want %q: %v", v.Reason, tt.want, v.Active)
			}
		})
	}
}

// TestKubeletBesideWarning: a kubelet that fails is named beside a warning that has
// stood for weeks.
func TestKubeletBesideWarning(t *testing.T) {
	var previous *Verdict
	for s := range 30 {
		now := t0.Add(time.Duration(s) * time.Second)
		f := healthyFacts(now)
		f.Pods = &Pods{Containers: map[string]int{"exited": 10_000}}
		if s > 12 {
			f.Evidence.Kubelet = &Kubelet{Seen: true, FailedSince: now.Add(-time.Minute), Detail: "syncloop"}
		}
		previous = Judge(&f, now, previous)
	}
	if previous.Reason != KubeletStalled {
		t.Errorf("%q, want %s: %v", previous.Reason, KubeletStalled, previous.Active)
	}
}
