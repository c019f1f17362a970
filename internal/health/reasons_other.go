package health

import (
	"fmt"
	"time"
)

const (
	// kubeletFails is how long the kubelet must have failed while the runtime
	// was good, kubeletGone how long nobody must have listened.
	kubeletFails = 10 * time.Second
	kubeletGone  = 10 * time.Second
	// kubeletOld is the age of the kubelet's own last seen beside a runtime
	// that answers: above the 300 s between two relists of a kubelet that uses
	// events (KEP-3386, 1.26 to 1.36).
	kubeletOld = 330 * time.Second
	// loopLate is how much longer than it may take a relist or a period must
	// take for the loop to count as stalled.
	loopLate = 10 * time.Second
)

// otherReasons speak of the runtime's other clients, the kubelet among them.
var otherReasons = []Reason{
	{
		ID: KubeletStalled, Layer: LayerKubelet, Severity: SeverityCritical,
		match: func(w *view) []string {
			k := w.f.Evidence.Kubelet
			if k == nil || !k.Seen || k.Refused || !w.runtimeGood() {
				return nil
			}
			var out []string
			if !k.OK && !k.FailedSince.IsZero() && w.age(k.FailedSince) >= kubeletFails {
				out = append(out, fmt.Sprintf("healthz has failed for %s: %s", Seconds(w.age(k.FailedSince)), k.Detail))
			}
			if !k.LastSeen.IsZero() && w.age(k.LastSeen) >= kubeletOld {
				out = append(out, fmt.Sprintf("its own last seen is %s old", Seconds(w.age(k.LastSeen))))
			}
			if len(out) > 0 {
				out = append(out, fmt.Sprintf("the runtime answered plegd %s ago", Seconds(w.age(w.lastAnswer))))
			}
			return out
		},
	},
	{
		ID: KubeletDown, Layer: LayerKubelet, Severity: SeverityCritical,
		match: func(w *view) []string {
			k := w.f.Evidence.Kubelet
			if k == nil || !k.Seen || !k.Refused || k.FailedSince.IsZero() || w.age(k.FailedSince) < kubeletGone {
				return nil
			}
			return []string{fmt.Sprintf("nobody has listened at its healthz for %s", Seconds(w.age(k.FailedSince)))}
		},
	},
	{
		ID: RelistLoopStalled, Layer: LayerPlegd, Severity: SeverityCritical,
		match: func(w *view) []string {
			r, c := &w.f.Relist, &w.f.Config
			switch {
			case r.InFlight != nil && r.InFlight.Phase != PhaseInspect && w.age(r.InFlight.PhaseStart) > c.RPCTimeout+loopLate:
				return []string{fmt.Sprintf("%s has been under way for %s, and may take %s", r.InFlight.Phase,
					Seconds(w.age(r.InFlight.PhaseStart)), Seconds(c.RPCTimeout))}
			case r.InFlight == nil && r.Last != nil && w.age(r.Last.End) > c.RelistPeriod+loopLate:
				return []string{fmt.Sprintf("no relist has begun for %s", Seconds(w.age(r.Last.End)))}
			}
			return nil
		},
	},
}

// runtimeGood reports whether all that plegd asks of the runtime itself is answered,
// and has been for a while: the kubelet's own check fails minutes into a runtime's
// fault, and recovers after it. Warnings that stand beside it say nothing of this.
func (w *view) runtimeGood() bool {
	r, s := &w.f.Relist, &w.f.Status
	lately := func(t time.Time) bool { return !t.IsZero() && w.age(t) < kubeletFails }
	if r.Failures > 0 || w.lists == listsHang || r.Last == nil || lately(r.AnsweredSince) ||
		w.inspecting() >= kubeletFails {
		return false
	}
	status := w.f.Calls[opStatus]
	slow := status.LastOKDuration >= statusHangAfter && lately(status.LastOK)
	if w.status != statusOK || slow || lately(status.LastFailed) {
		return false
	}
	return s.RuntimeReady.Good() && !s.LastGood.IsZero() && w.age(s.LastGood) <= statusLate
}
