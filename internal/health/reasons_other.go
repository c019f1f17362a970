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
		Meaning: "The runtime is fine, and the kubelet is not: its own health check fails, or its PLEG is behind.",
		Needs:   "the kubelet's healthz fails, or its kubelet_pleg_last_seen_seconds is old, while the runtime answers plegd.",
		Thresholds: []Threshold{
			{"healthz fails for %s", kubeletFails},
			{"the kubelet's own last seen is %s old", kubeletOld},
			{"the runtime good for %s", kubeletFails},
		},
		Next: "Look at the kubelet, not at the runtime.",
		Steps: []string{
			"`curl -s 'localhost:10248/healthz?verbose'`: which check fails.",
			"`journalctl -u kubelet -b --since -15min`.",
			"`systemctl kill -s ABRT kubelet` ends it with its goroutine stacks in the journal; systemd starts it again.",
		},
		Restart: HelpsNo, RestartNote: "Restart the kubelet; containers are kept.",
		match: func(w *view) []string {
			k := w.f.Evidence.Kubelet
			if k == nil || !k.Seen || k.Refused || !w.on(sigRuntimeGood) {
				return nil
			}
			var out []string
			if !k.OK && !k.FailedSince.IsZero() && w.age(k.FailedSince) >= kubeletFails {
				out = append(out, fmt.Sprintf("healthz has failed for %s: %s", short(w.age(k.FailedSince)), k.Detail))
			}
			if !k.LastSeen.IsZero() && w.age(k.LastSeen) >= kubeletOld {
				out = append(out, fmt.Sprintf("its own last seen is %s old", short(w.age(k.LastSeen))))
			}
			if len(out) > 0 {
				out = append(out, fmt.Sprintf("the runtime answered plegd %s ago", short(w.age(w.lastAnswer))))
			}
			return out
		},
	},
	{
		ID: KubeletDown, Layer: LayerKubelet, Severity: SeverityCritical,
		Meaning: "The kubelet does not run: nobody listens at its healthz.",
		Needs:   "its healthz answered before, and connections are refused.",
		Thresholds: []Threshold{
			{"nobody listens for %s", kubeletGone},
		},
		Next: "Start the kubelet; see in its log why it ended.",
		Steps: []string{
			"`systemctl status kubelet`: stopped by somebody, failed, or restarting?",
			"`journalctl -u kubelet -b -n 100`: its last words; a wrong flag or a certificate that has run out stands in the last lines.",
			"`df -h /var/lib/kubelet`; `free -m`: a full disk or no memory ends it, too.",
		},
		Restart: HelpsNo,
		match: func(w *view) []string {
			k := w.f.Evidence.Kubelet
			if k == nil || !k.Seen || !k.Refused || k.FailedSince.IsZero() || w.age(k.FailedSince) < kubeletGone {
				return nil
			}
			return []string{fmt.Sprintf("nobody has listened at its healthz for %s", short(w.age(k.FailedSince)))}
		},
	},
	{
		ID: RelistLoopStalled, Layer: LayerPlegd, Severity: SeverityCritical,
		Meaning: "plegd's own relist loop does not move: this is a fault of plegd and says nothing about the runtime.",
		Needs:   "a relist takes longer than its time limits allow, or none begins.",
		Thresholds: []Threshold{
			{"%s beyond --rpc-timeout, or beyond --relist-period", loopLate},
		},
		Next: "Restart plegd, and please report this with its log.",
		Steps: []string{
			"`systemctl kill -s ABRT plegd` ends it with its goroutine stacks in the journal; systemd starts it again.",
		},
		Restart: HelpsNo,
		match: func(w *view) []string {
			r, c := &w.f.Relist, &w.f.Config
			switch {
			case r.InFlight != nil && r.InFlight.Phase != PhaseInspect && w.age(r.InFlight.PhaseStart) > c.RPCTimeout+loopLate:
				return []string{fmt.Sprintf("%s has been under way for %s, and may take %s", r.InFlight.Phase, short(w.age(r.InFlight.PhaseStart)), short(c.RPCTimeout))}
			case r.InFlight == nil && r.Last != nil && w.age(r.Last.End) > c.RelistPeriod+loopLate:
				return []string{fmt.Sprintf("no relist has begun for %s", short(w.age(r.Last.End)))}
			}
			return nil
		},
	},
}

// callsGood reports whether all that plegd asks of the runtime itself is answered.
func (w *view) callsGood() bool {
	r, s := &w.f.Relist, &w.f.Status
	_, _, hanging := w.hang()
	relists := r.Failures == 0 && !hanging && r.Last != nil && w.inspecting() < kubeletFails
	return relists && !w.on(sigStatusTrouble) && s.RuntimeReady.Good() && !s.LastGood.IsZero() && w.age(s.LastGood) <= statusLate
}

// runtimeGood reports whether that is so and has been for a while: the kubelet's own
// check fails minutes into a runtime's fault, and recovers after it. Warnings that
// stand beside it, of the runtime or of the kubelet, say nothing of this.
func (w *view) runtimeGood() bool {
	if !w.on(sigCallsGood) || w.previous == nil {
		return w.on(sigCallsGood)
	}
	before := w.previous.signal(callsGood)
	return before != nil && w.age(before.Since) >= kubeletFails
}
