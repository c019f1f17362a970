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
	healthy := func(ago time.Duration) *Verdict {
		return &Verdict{State: StateHealthy, Predicted: Predicted{NodeReady: true}, Since: t0.Add(-ago)}
	}
	for _, tt := range []struct {
		name     string
		previous *Verdict
		want     string
	}{
		{"a look of a moment", nil, KubeletStalled},
		{"the runtime was stuck until a moment ago", healthy(time.Second), ""},
		{"the runtime is good for long", healthy(11 * time.Second), KubeletStalled},
		{"it was said before", &Verdict{State: StateDegraded, Predicted: Predicted{NodeReady: true}, Since: t0.Add(-time.Second), Active: []Active{{ID: KubeletStalled}}}, KubeletStalled},
		{"something else is wrong", &Verdict{State: StateDegraded, Predicted: Predicted{NodeReady: true}, Since: t0.Add(-time.Hour), Active: []Active{{ID: RuntimeListStall}}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if v := Judge(&f, t0, tt.previous); v.Reason != tt.want {
				t.Errorf("%q, want %q: %v", v.Reason, tt.want, v.Active)
			}
		})
	}
}
