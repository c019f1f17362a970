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

// Judge makes the verdict of the facts at now. previous is the verdict before it, nil for the first: it has since when
// a state or a reason is active, and keeps a reason from flapping at its threshold.
func Judge(f *facts.Facts, now time.Time, previous *facts.Verdict) *facts.Verdict {
	w, at := newView(f, now, previous), facts.Snapshot{At: now}
	k := w.kubelet
	v := &facts.Verdict{
		PLEGHealthy: k.PLEGHealthy, SyncLoopAllowed: k.SyncLoopAllowed,
		Predicted: facts.Predicted{RulesOK: k.NodeReady, Started: f.KubeletStarted},
		LastSeen:  f.Relist.LastSeen, LastSeenAge: at.Age(f.Relist.LastSeen),
		ModelledLastSeen: f.Modelled.LastSeen, ModelledAge: at.Age(f.Modelled.LastSeen),
		Threshold: f.Config.RelistThreshold, Since: now, Active: []facts.Active{},
	}
	seen := w.observations()
	w.starting = kubelet.Starting(f, now, seen)
	w.verdict, w.all = v, []*view{w}
	for i := range f.Evidence.Hops {
		w.all = append(w.all, newView(f.At(f.Evidence.Hops[i].Socket), now, previous))
	}
	if w.firstAttemptMade() {
		matchRows(v, w, false)
		holdPrimary(v, w)
		for _, a := range v.Active {
			if l := reasonOf(a.ID).Layer; a.Severity == facts.SeverityCritical && (w.critical == 0 || l < w.critical) {
				w.critical = l
			}
		}
	}
	matchRows(v, w, true)
	rankReasons(v, w)
	if c := w.chainOf(v.Reason); c.First().Kind != "" {
		v.Chain, v.ChainEnd, v.Culprit = c.Links, c.Unknown, c.Culprit()
	}
	v.Next = nextStep(v, w)

	switch {
	case cannotSee(v, w):
		v.State = facts.StateUnknown
		v.NodeReady = previous == nil || previous.NodeReady // as it was last known
	case w.starting:
		v.State = facts.StateStarting
	case !k.NodeReady:
		v.State = facts.StateUnhealthy
	case hasReason(v):
		v.State = facts.StateDegraded
	default:
		v.State = facts.StateHealthy
	}
	kubelet.Predict(v, f, now, seen)
	v.Steps = stepsOf(v, f)
	if previous != nil && previous.State == v.State {
		v.Since = previous.Since
	}
	return v
}

// next is what to do next: the row's with this node's own values, the wait chain's, or the general one of the page.
func nextStep(v *facts.Verdict, w *view) (next string) {
	if v.Reason == "" {
		return ""
	}
	at, r := w, reasonOf(v.Reason)
	if i := slices.IndexFunc(w.all, func(of *view) bool { return of.f.Evidence.Socket == v.Hop }); i > 0 {
		at = w.all[i]
	}
	if r.next != nil {
		next = r.next(at)
	}
	next = cmp.Or(next, w.chainNext(r.ID), pageNext(at.f, r, v.Chain))
	if h := at.hop; h != nil {
		next = strings.TrimSpace(fmt.Sprintf("At %s: %s %s", h.Name(), next, h.Caution))
	}
	return next
}

// pageNext is the Next of a reason's page with the node's values, or the page's one line where the node does not show them all.
func pageNext(f *facts.Facts, r *Reason, chain []facts.Link) string {
	if next, known := nodeWords(f, r.ID, chain).fill(r.Next); known {
		return next
	}
	return strings.ToUpper(r.NextLine[:1]) + r.NextLine[1:] + "."
}

// match activates the reasons that rows find, at the first hop: those that stand for themselves, or the fallbacks.
func matchRows(v *facts.Verdict, w *view, last bool) {
	for i := range table {
		r := &table[i]
		for _, at := range w.all {
			if r.is(fallback) != last || at.hop == nil && w.waitsForHops(r.ID) || at.hop != nil && !r.is(onHops) {
				continue
			}
			evidence := r.match(at)
			if evidence == nil {
				continue
			}
			if at.hop != nil {
				evidence = slices.Insert(evidence, 0, "behind the runtime: "+at.hop.Name())
			}
			v.Active = append(v.Active, activated(at, r, evidence))
			break
		}
	}
}

// blind reports whether plegd cannot reach a runtime that others can, and nothing else is known to be wrong.
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
func hasReason(v *facts.Verdict) bool {
	return slices.ContainsFunc(v.Active, func(a facts.Active) bool { return a.Severity != facts.SeverityInfo })
}

// CloserLook reports whether to sample the node more often: not while healthy, nor for what grows over hours.
func CloserLook(v *facts.Verdict) bool {
	return v.State != facts.StateHealthy && (v.State != facts.StateDegraded || slices.ContainsFunc(v.Active, func(a facts.Active) bool {
		return a.Severity != facts.SeverityInfo && !reasonOf(a.ID).is(gradual)
	}))
}

// activated returns a reason that is active now.
func activated(w *view, r *Reason, evidence lines) facts.Active {
	a := facts.Active{ID: r.ID, Severity: r.severity(w), Since: w.now, Seen: w.now, Evidence: evidence, Hop: w.f.Evidence.Socket}
	if was := w.previous.ActiveReason(r.ID); was != nil {
		a.Since, a.Missed = was.Since, was.Missed
		if gap := w.age(was.Seen); gap > gapCounts && !r.is(gradual|event) {
			a.Missed += gap
		}
	}
	return a
}
