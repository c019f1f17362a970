package health

import (
	"cmp"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// The layers, the first to look at first.
const (
	LayerPlegd   facts.Layer = iota + 1 // plegd itself sees or does nothing
	LayerProcess                        // what keeps a process from running: the runtime's, or one behind it
	LayerSocket                         // the path, the listener and its accept queue
	LayerCalls                          // what the runtime answers to calls about itself and the whole node
	LayerPods                           // what pods need beside that: shims, helpers, the network
	LayerNode                           // pressure on the whole node
	LayerKubelet                        // the kubelet
	LayerHints                          // what only nears a limit
)

// bySeverity are the severities, the worst first.
var bySeverity = []facts.Severity{facts.SeverityCritical, facts.SeverityWarning, facts.SeverityInfo}

func rankOf(s facts.Severity) int { return slices.Index(bySeverity, s) }

// compare orders active reasons, the primary one first: by severity, then by layer, then by their place in the table.
func compare(a, b facts.Active) int {
	return cmp.Or(
		cmp.Compare(rankOf(a.Severity), rankOf(b.Severity)),
		cmp.Compare(reasonOf(a.ID).Layer, reasonOf(b.ID).Layer),
		cmp.Compare(place(a.ID), place(b.ID)),
	)
}

// provenCause returns the active reason that the chain of waiting, or the size of lists, proves to be the cause of
// another one; nil for none.
func (s *signals) provenCause(v *facts.Verdict, symptom string) *facts.Active {
	proven := s.callCause
	if proven == "" && s.sizeExplains() {
		proven = TooManyContainers
	}
	if proven == "" || !slices.Contains(reasonOf(symptom).CausedBy, proven) {
		return nil
	}
	return v.ActiveReason(proven)
}

// holdPrevious keeps the previous primary reason for a moment after it last matched, unless a more severe one matches:
// evidence is read at different times, and calls are answered in between. It does not keep Unknown, nor a reason that
// matched only before the first success: an ordinary start while the runtime is starting is normal.
func holdPrevious(active []facts.Active, s *signals) []facts.Active {
	primary := s.previousPrimary()
	if primary == nil || primary.Severity == facts.SeverityInfo || reasonOf(primary.ID).Fallback != nil {
		return active
	}
	firstSuccess := s.previous.State == facts.StateStarting && !s.starting
	if firstSuccess || s.age(primary.Seen) >= holdTime(primary) {
		return active
	}
	replaced := slices.ContainsFunc(active, func(a facts.Active) bool {
		return a.ID == primary.ID || rankOf(a.Severity) < rankOf(primary.Severity)
	})
	if replaced {
		return active
	}
	held := *primary
	held.Held = true
	return append(active, held)
}

// holdTime is how long the reason stays after it last matched.
func holdTime(a *facts.Active) time.Duration { return min(holdFor+a.Missed, maxHold) }

// previousPrimary is the primary reason of the verdict before, nil for none.
func (s *signals) previousPrimary() *facts.Active {
	if s.previous == nil || len(s.previous.Active) == 0 {
		return nil
	}
	return &s.previous.Active[0]
}

// rankReasons sets the primary reason and the symptom, and puts the active reasons in order.
func rankReasons(v *facts.Verdict, s *signals) {
	if len(v.Active) == 0 {
		return
	}
	primary := pickPrimary(v, s)
	primary = keepPrevious(v, primary, s)
	v.Active = orderReasons(v.Active, primary)
	v.Reason = primary.ID
	v.Hop = primary.Hop
	v.Symptom = symptomOf(v)
}

// pickPrimary returns the reason with the highest rank, or its proven cause.
func pickPrimary(v *facts.Verdict, s *signals) facts.Active {
	highest := slices.MinFunc(v.Active, compare)
	if cause := s.provenCause(v, highest.ID); cause != nil {
		return *cause
	}
	return highest
}

// keepPrevious returns the previous primary reason while it is active, as severe as the candidate, and not displaced by it.
func keepPrevious(v *facts.Verdict, candidate facts.Active, s *signals) facts.Active {
	previous := s.previousPrimary()
	if previous == nil {
		return candidate
	}
	primary := v.ActiveReason(previous.ID)
	if primary == nil || primary.Severity != candidate.Severity || s.displaces(v, &candidate, primary) {
		return candidate
	}
	return *primary
}

// displaces reports whether a reason takes the place of the primary one, which is as severe.
func (s *signals) displaces(v *facts.Verdict, a, primary *facts.Active) bool {
	settle := settleFor
	if primary.Missed > 0 {
		settle = holdTime(primary)
	}
	if s.age(a.Since) >= settle || reasonOf(a.ID).Layer < reasonOf(primary.ID).Layer {
		return true
	}
	cause := s.provenCause(v, primary.ID)
	return cause != nil && cause.ID == a.ID
}

// orderReasons returns the reasons with the primary one first and the others in the table's order.
func orderReasons(active []facts.Active, primary facts.Active) []facts.Active {
	rest := slices.DeleteFunc(slices.Clone(active), func(a facts.Active) bool { return a.ID == primary.ID })
	slices.SortStableFunc(rest, func(a, b facts.Active) int { return cmp.Compare(place(a.ID), place(b.ID)) })
	return slices.Insert(rest, 0, primary)
}

// symptomOf returns the active symptom that a critical primary reason, the first one, explains; "" for none.
func symptomOf(v *facts.Verdict) string {
	primary := &v.Active[0]
	if primary.Severity != facts.SeverityCritical || slices.Contains(symptoms, primary.ID) {
		return ""
	}
	for _, id := range symptoms {
		if v.ActiveReason(id) != nil {
			return id
		}
	}
	return ""
}

// symptoms are the reasons that describe what the kubelet sees, in order of preference.
var symptoms = []string{RuntimeUnresponsive, RuntimeListStall, RuntimeNotReady, PodInspectionStall}

// near reports whether a value has come to a share of its limit: of a lower one if the reason is already active (hysteresis).
func (s *signals) near(id string, value, limit, enter, leave float64) bool {
	return value >= limit*s.band(id, enter, leave)
}

// band returns the number from which a reason becomes active or, while it is active, below which it ends: for numbers
// that stay near a limit for hours.
func (s *signals) band(id string, enter, leave float64) float64 {
	if s.wasActive(id) {
		return leave
	}
	return enter
}
