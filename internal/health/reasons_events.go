package health

import "fmt"

const (
	// streamFailures is how often the stream must have failed: as often as the
	// kubelet tries (eventedPlegMaxStreamRetries).
	streamFailures = 5

	phaseBroken = "broken"
)

// eventReasons speak of the runtime's event stream; they need --events.
var eventReasons = []Reason{
	{
		ID: EventStreamBroken, Layer: LayerHints, Severity: SeverityWarning,
		Meaning: "The runtime's event stream breaks again and again, while its calls are answered: a kubelet that relies on events is back to relists, for good.",
		Needs:   "--events=hint or evented, and a stream that has failed.",
		Thresholds: []Threshold{
			{"%s failures, as the kubelet counts; over once a stream holds for --events-lease", streamFailures},
		},
		Next: "See in the runtime's log why its streams end; until then a kubelet with the EventedPLEG feature gate does better without it.",
		Steps: []string{
			"`plegd status`: the stream's last error, in the runtime's own words.",
			"`journalctl -u {unit} -b --since -15min`: was the runtime restarted?",
			"`kubectl get --raw /api/v1/nodes/NODE/proxy/metrics | grep evented_pleg`: the kubelet's own count of failures.",
			"A kubelet before 1.37 that has fallen back uses events again only after its restart.",
		},
		Restart: HelpsMaybe, RestartNote: "Where one stream is broken for good; a kubelet before 1.37 must be restarted too.",
		match: func(w *view) []string {
			e := w.f.Events
			if e == nil || e.Phase != phaseBroken || w.f.Relist.Failures > 0 {
				return nil
			}
			if !e.FellBack && e.Failures < streamFailures {
				return nil
			}
			out := []string{fmt.Sprintf("the event stream has failed %d times, the last %s ago", e.Failures, short(w.age(e.LastFailed)))}
			if e.LastErr != nil {
				out = append(out, fmt.Sprintf("%s: %s", e.LastErr.Code, e.LastErr.Message))
			}
			if e.FellBack {
				out = append(out, fmt.Sprintf("plegd relists every %s until a stream holds", w.f.Config.RelistPeriod))
			}
			return out
		},
	},
}
