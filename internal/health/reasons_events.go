package health

import (
	"fmt"
	"time"
)

const (
	// streamFailures is how often the stream must have failed: as often as the
	// kubelet tries (eventedPlegMaxStreamRetries).
	streamFailures = 5
	// missedPersists is how far apart the first and the last missed change of a
	// run must be: what happens around a cut is in none, but one bad moment of the
	// runtime's may lose several.
	missedPersists = 10 * time.Second
	// missedRecent is how long a missed change is news, beside two periods.
	missedRecent = time.Minute

	phaseBroken = "broken"
)

// eventReasons speak of the runtime's event stream; they need --events.
var eventReasons = []Reason{
	{
		ID: EventStreamBroken, Severity: SeverityWarning,
		Meaning: "The runtime's event stream breaks again and again, while its calls are answered: a kubelet that relies on events is back to relists, for good.",
		Needs:   "--events=hint or evented, and a stream that has failed.",
		Thresholds: []Threshold{
			{"%s failures, as the kubelet counts; over once a stream holds for --events-lease", streamFailures},
		},
		Outranks: []string{EventsMissed},
		Next:     "See in the runtime's log why its streams end; until then a kubelet with the EventedPLEG feature gate does better without it.",
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
	{
		ID: EventsMissed, Severity: SeverityWarning,
		Meaning: "The runtime's events do not report every change: a kubelet that relies on them sees such a change up to 5 min late.",
		Needs:   "--events=hint or evented, and changes that relists find and no event reports.",
		Thresholds: []Threshold{
			{"no event within two relist periods", nil},
			{"repeatedly for %s while the stream held: a cut or a lapse explains what is missed around it", missedPersists},
			{"the last within %s or two periods in force", missedRecent},
		},
		Next: "Do not rely on events on this node: leave the kubelet's EventedPLEG feature gate off.",
		Steps: []string{
			"`plegd status`: how many changes were missed, and of how many events.",
			"`pleg_evented_missed_total` beside `pleg_evented_events_total`: since when, and whether it goes with a version of the runtime.",
			"containerd 1.7 gives each event to only one subscriber: is there another one? `ss -xp | awk -v s={socket} '$5==s {want[$8]} {line[$6]=$0} END {for (i in want) print line[i]}'` lists the clients.",
		},
		Restart: HelpsMaybe,
		match: func(w *view) []string {
			e := w.f.Events
			if e == nil || e.LastMissed.IsZero() || e.LastMissed.Sub(e.MissedSince) < missedPersists || w.age(e.LastMissed) > missedRecent+2*w.f.Config.RelistPeriod {
				return nil
			}
			var received uint64
			for _, n := range e.Received {
				received += n
			}
			return []string{fmt.Sprintf("changes without an event while the stream lasted, for %s, the last %s ago; %d missed changes and %d events in all",
				short(e.LastMissed.Sub(e.MissedSince)), short(w.age(e.LastMissed)), e.Missed, received)}
		},
	},
}
