// Package health turns facts into a verdict: it holds the one table of reasons, and applies the rules of
// internal/kubelet. It is pure: plain values in, plain values out, and the time is a parameter.
package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/kubelet"
)

// Judge makes the verdict of the facts at a moment. previous is the verdict before it, nil for the first: it has since when
// a state or a reason is active, and keeps a reason from flapping at its threshold.
func Judge(f *facts.Facts, moment time.Time, previous *facts.Verdict) *facts.Verdict {
	w := newView(f, moment, previous)
	views := []*view{w}
	for i := range f.Evidence.Hops {
		views = append(views, newView(f.At(f.Evidence.Hops[i].Socket), moment, previous))
	}
	v := newVerdict(w)
	if w.firstAttemptMade() {
		v.Active = holdPrevious(matchRows(views), w)
	}
	v.Active = matchFallbacks(v.Active, w)
	rankReasons(v, w)
	c := w.chainOf(v.Reason, v.Hop)
	if c.First().Kind != "" {
		v.Chain = c.Links
		v.ChainEnd = c.Unknown
		v.Culprit = c.Culprit()
	}
	v.Next = nextStep(v, views)
	v.State = stateOf(v, w)
	if v.State == facts.StateUnknown {
		v.NodeReady = previous == nil || previous.NodeReady // as it was last known
	}
	kubelet.Predict(v, f, moment, w.observations())
	v.Steps = stepsOf(v, f)
	if previous != nil && previous.State == v.State {
		v.Since = previous.Since
	}
	return v
}

// newVerdict returns a verdict with what does not depend on reasons.
func newVerdict(w *view) *facts.Verdict {
	f := w.f
	snapshot := facts.Snapshot{At: w.now}
	return &facts.Verdict{
		PLEGHealthy:      w.kubelet.PLEGHealthy,
		SyncLoopAllowed:  w.kubelet.SyncLoopAllowed,
		Predicted:        facts.Predicted{RulesOK: w.kubelet.NodeReady, Started: f.KubeletStarted},
		LastSeen:         f.Relist.LastSeen,
		LastSeenAge:      snapshot.Age(f.Relist.LastSeen),
		ModelledLastSeen: f.Modelled.LastSeen,
		ModelledAge:      snapshot.Age(f.Modelled.LastSeen),
		Threshold:        f.Config.RelistThreshold,
		Since:            w.now,
		Active:           []facts.Active{},
	}
}

// stateOf returns the verdict in one word.
func stateOf(v *facts.Verdict, w *view) facts.State {
	switch {
	case cannotSee(v, w):
		return facts.StateUnknown
	case w.starting:
		return facts.StateStarting
	case !w.kubelet.NodeReady:
		return facts.StateUnhealthy
	case hasReason(v.Active):
		return facts.StateDegraded
	}
	return facts.StateHealthy
}

// nextStep returns what to do next: the row's step with this node's own values, the wait chain's, or the page's.
func nextStep(v *facts.Verdict, views []*view) string {
	if v.Reason == "" {
		return ""
	}
	w := viewOf(views, v.Hop)
	r := reasonOf(v.Reason)
	next := ""
	if r.NodeNext != nil {
		next = r.NodeNext(w)
	}
	next = cmp.Or(next, views[0].chainNext(r.ID, v.Hop), pageNext(w.f, r, v.Chain))
	if h := w.hop; h != nil {
		next = strings.TrimSpace(fmt.Sprintf("At %s: %s %s", h.Name(), next, h.Caution))
	}
	return next
}

// viewOf returns the view of the hop at a socket, the runtime's for "".
func viewOf(views []*view, socket string) *view {
	for _, w := range views[1:] {
		if w.hop.Socket == socket {
			return w
		}
	}
	return views[0]
}

// pageNext is the Next of a reason's page with the node's values, or the page's one line where the node does not show them all.
func pageNext(f *facts.Facts, r *Reason, chain []facts.Link) string {
	if next, known := nodeWords(f, r.ID, chain).fill(r.Next); known {
		return next
	}
	return strings.ToUpper(r.NextLine[:1]) + r.NextLine[1:] + "."
}

// matchRows returns the reasons that match, each at the first hop of the CRI call path at which it does.
func matchRows(views []*view) []facts.Active {
	active := []facts.Active{}
	for i := range table {
		if a := matchRow(&table[i], views); a != nil {
			active = append(active, *a)
		}
	}
	return active
}

// matchRow returns a reason where it matches, else nil.
func matchRow(r *Reason, views []*view) *facts.Active {
	for _, w := range views {
		if r.Match == nil || !r.appliesTo(w) {
			continue
		}
		evidence := r.Match(w)
		if evidence == nil {
			continue
		}
		if w.hop != nil {
			evidence = slices.Insert(evidence, 0, "behind the runtime: "+w.hop.Name())
		}
		return activated(w, r, evidence)
	}
	return nil
}

// findings are what the rows that are asked first have found.
type findings struct {
	problem  bool        // a reason that is more than information
	critical facts.Layer // the lowest layer that has a critical reason, 0 for none
	network  bool        // NetworkNotReady, which is a rule of the kubelet by itself
}

func findingsOf(active []facts.Active) findings {
	out := findings{problem: hasReason(active)}
	for _, a := range active {
		layer := reasonOf(a.ID).Layer
		out.network = out.network || a.ID == NetworkNotReady
		if a.Severity == facts.SeverityCritical && (out.critical == 0 || layer < out.critical) {
			out.critical = layer
		}
	}
	return out
}

// matchFallbacks appends the reasons that match for what the active ones do not explain.
func matchFallbacks(active []facts.Active, w *view) []facts.Active {
	for i := range table {
		r := &table[i]
		if r.Fallback == nil {
			continue
		}
		if evidence := r.Fallback(w, findingsOf(active)); evidence != nil {
			active = append(active, *activated(w, r, evidence))
		}
	}
	return active
}

// appliesTo reports whether the reason is asked of the runtime, or of the hop that a view is of.
func (r *Reason) appliesTo(w *view) bool {
	if w.hop != nil {
		return r.OnHops
	}
	return !w.waitsForHops(r.ID)
}

// cannotSee reports whether plegd cannot reach a runtime that others can, and nothing else is known to be wrong.
func cannotSee(v *facts.Verdict, w *view) bool {
	held := w.previous != nil && w.previous.State == facts.StateUnknown && v.Reason == w.previous.Reason
	return (held || w.blind()) && !slices.ContainsFunc(v.Active, func(a facts.Active) bool {
		return a.Severity == facts.SeverityCritical && a.ID != RuntimeSocketPermissionDenied && a.ID != RuntimeSocketMissing
	})
}

// blind reports whether a permission, or a path that is missing in its mounts, keeps plegd alone from the runtime.
func (w *view) blind() bool {
	return w.cause == facts.CausePermissionDenied || w.cause == facts.CauseMissing && w.hidden()
}

// hasReason reports whether a reason is active that is more than information.
func hasReason(active []facts.Active) bool {
	return slices.ContainsFunc(active, func(a facts.Active) bool { return a.Severity != facts.SeverityInfo })
}

// CloserLook reports whether to sample the node more often: not while healthy, nor for what grows over hours.
func CloserLook(v *facts.Verdict) bool {
	return v.State != facts.StateHealthy && (v.State != facts.StateDegraded || slices.ContainsFunc(v.Active, func(a facts.Active) bool {
		return a.Severity != facts.SeverityInfo && !reasonOf(a.ID).Gradual
	}))
}

// activated returns a reason that is active now.
func activated(w *view, r *Reason, evidence lines) *facts.Active {
	a := facts.Active{ID: r.ID, Severity: r.severity(w), Since: w.now, Seen: w.now, Evidence: evidence, Hop: w.f.Evidence.Socket}
	earlier := w.previous.ActiveReason(r.ID)
	if earlier == nil {
		return &a
	}
	a.Since = earlier.Since
	a.Missed = earlier.Missed
	gap := w.age(earlier.Seen)
	if gap > minGap && !r.Gradual && !r.Event {
		a.Missed += gap
	}
	return &a
}
