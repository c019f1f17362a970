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

const (
	// holdFor is how long the primary reason stays after it last matched, and holdMost how
	// long one stays that flickers: the longer its evidence was missing before, the longer.
	holdFor  = 3 * time.Second
	holdMost = 10 * time.Second
	// gapCounts is the least gap in a reason's evidence that counts as missing.
	gapCounts = time.Second
	// settleFor is how long another reason of the same severity must be active to become the primary one.
	settleFor = 2 * time.Second
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

// explains reports whether the chain of waiting proves one reason to be the cause of another.
func (w *view) explains(cause, symptom string) bool {
	return cause != "" && w.chainCause() == cause && symptom == w.chainSymptom()
}

// hold keeps the previous primary reason for a moment after it last matched, unless a more severe one matches:
// evidence is read at different times, and calls are answered in between. It does not keep Unknown, nor a reason that
// matched only before the first success: an ordinary start beside a runtime that starts is no fault.
func holdPrimary(v *facts.Verdict, w *view) {
	before := w.primaryBefore()
	if before == nil || before.Severity == facts.SeverityInfo || reasonOf(before.ID).is(fallback) ||
		w.previous.State == facts.StateStarting && !w.starting {
		return
	}
	worse := slices.ContainsFunc(v.Active, func(a facts.Active) bool { return rankOf(a.Severity) < rankOf(before.Severity) })
	if v.ActiveReason(before.ID) == nil && !worse && w.age(before.Seen) < holdTime(before) {
		v.Active = append(v.Active, *before)
	}
}

// hold is how long the reason stays after it last matched.
func holdTime(a *facts.Active) time.Duration { return min(holdFor+a.Missed, holdMost) }

// primaryBefore is the primary reason of the verdict before, nil for none.
func (w *view) primaryBefore() *facts.Active {
	if w.previous == nil || len(w.previous.Active) == 0 {
		return nil
	}
	return &w.previous.Active[0]
}

// rank puts the primary reason first: the best one or its cause, and the one before for a moment if no worse.
func rankReasons(v *facts.Verdict, w *view) {
	if len(v.Active) == 0 {
		return
	}
	best := slices.MinFunc(v.Active, compare)
	if i := slices.IndexFunc(v.Active, func(a facts.Active) bool { return w.explains(a.ID, best.ID) }); i >= 0 {
		best = v.Active[i]
	}
	if before := w.primaryBefore(); before != nil {
		still := v.ActiveReason(before.ID)
		if still != nil && still.Severity == best.Severity && !w.displaces(&best, still) {
			best = *still
		}
	}
	v.Active = slices.DeleteFunc(v.Active, func(a facts.Active) bool { return a.ID == best.ID })
	slices.SortStableFunc(v.Active, func(a, b facts.Active) int { return cmp.Compare(place(a.ID), place(b.ID)) })
	v.Active = slices.Insert(v.Active, 0, best)
	v.Reason, v.Hop = best.ID, best.Hop
	stands := func(id string) bool { return v.ActiveReason(id) != nil }
	if i := slices.IndexFunc(symptoms, stands); i >= 0 && best.Severity == facts.SeverityCritical &&
		!slices.Contains(symptoms, best.ID) {
		v.Symptom = symptoms[i]
	}
}

// displaces reports whether a reason takes the place of the primary one, which is as severe.
func (w *view) displaces(a, primary *facts.Active) bool {
	settle := settleFor
	if primary.Missed > 0 {
		settle = holdTime(primary)
	}
	return w.age(a.Since) >= settle || w.explains(a.ID, primary.ID) || reasonOf(a.ID).Layer < reasonOf(primary.ID).Layer
}

// symptoms are the reasons that describe what the kubelet sees, in order of preference.
var symptoms = []string{RuntimeUnresponsive, RuntimeListStall, RuntimeNotReady, PodInspectionStall}

// near reports whether a value is at or above a share of its limit: of a smaller one for a reason that stands.
func (w *view) near(id string, value, limit, begin, end float64) bool {
	return value >= limit*w.band(id, begin, end)
}

// band is where a reason begins or, while it stands, ends: for numbers that stay near a limit for hours.
func (w *view) band(id string, begin, end float64) float64 {
	if w.wasActive(id) {
		return end
	}
	return begin
}
