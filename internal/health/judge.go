// Package health turns facts into a verdict. It holds the kubelet's own rules with their messages
// word for word, the modelled kubelet that they are applied to, and the one table of reasons. It is
// pure: plain values in, plain values out, and the time is a parameter.
package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// reliableGap is how long plegd may have been away until restored times count no longer.
const reliableGap = 10 * time.Second

// Judge makes the verdict of the facts at now. previous is the verdict before it, nil for the first: it has since when
// a state or a reason is active, and keeps a reason from flapping at its threshold.
func Judge(f *facts.Facts, now time.Time, previous *facts.Verdict) *facts.Verdict {
	w, at := newView(f, now, previous), facts.Snapshot{At: now}
	k := w.kubelet
	v := &facts.Verdict{
		PLEGHealthy: k.plegHealthy, SyncLoopAllowed: k.syncLoopAllowed,
		Predicted: facts.Predicted{RulesOK: k.nodeReady, Started: f.KubeletStarted},
		LastSeen:  f.Relist.LastSeen, LastSeenAge: at.Age(f.Relist.LastSeen),
		ModelledLastSeen: f.Modelled.LastSeen, ModelledAge: at.Age(f.Modelled.LastSeen),
		Threshold: f.Config.RelistThreshold, Since: now, Active: []facts.Active{},
	}
	w.starting, w.verdict, w.all = starting(w), v, []*view{w}
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
	case w.starting:
		v.State = facts.StateStarting
	case !k.nodeReady:
		v.State = facts.StateUnhealthy
	case hasReason(v):
		v.State = facts.StateDegraded
	default:
		v.State = facts.StateHealthy
	}
	predict(v, w)
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
	next = cmp.Or(next, w.chainNext(r.ID), nodeSteps(at.f, nil).Replace(r.Next))
	if h := at.hop; h != nil {
		next = strings.TrimSpace(fmt.Sprintf("At %s: %s %s", h.Name(), next, h.Caution))
	}
	return next
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

// starting reports whether there is no success yet, and none of the kubelet's rules has had its full time.
func starting(w *view) bool {
	f, age, seen := w.f, w.age(w.f.Started), facts.LastSeen(w.f)
	r, s, long := &f.Relist, &f.Status, f.Config.RelistLateAfter()
	// The first relist and the first Status have ended, or have been in flight for long.
	settled := (r.Last != nil || r.InFlight != nil && w.age(r.InFlight.Start) > long) &&
		(s.Answered && !s.Restored || w.unanswered(s.InFlightSince, long) || s.LastErr != nil)
	if f.KubeletStarted.After(f.Started) {
		seen = f.Relist.LastSeen // plegd has watched for longer than that kubelet runs
	}
	switch {
	case !w.firstAttemptMade() && facts.LastSeen(f).IsZero(), f.UnobservedGap > reliableGap && !settled:
		return true
	case s.Answered && (!s.RuntimeReady.Good() || !s.NetworkReady.Good()):
		return false // these rules take no time
	case age > f.Config.RelistThreshold, f.Status.LastGood.IsZero() && age >= RuntimeDownAfter:
		return false
	}
	return seen.IsZero() || f.Status.LastGood.IsZero()
}

// rulesFailAt returns when the first of the kubelet's rules fails, zero while nothing points that way.
func (w *view) rulesFailAt() (at time.Time) {
	if w.relistTrouble() && !w.relistEndsInTime() {
		at = cmp.Or(facts.LastSeen(w.f), w.f.Started).Add(w.f.Config.RelistThreshold)
	}
	if w.statusRuleCounts() {
		at = earliest(at, cmp.Or(w.f.Status.LastGood, w.f.Started).Add(RuntimeDownAfter))
	}
	return at
}

// relistEndsInTime reports whether the relist, which inspects, ends before the next one would come too late.
func (w *view) relistEndsInTime() bool {
	f := w.f
	if f.Modelled.EndsBy.IsZero() || f.Relist.Failures > 0 {
		return false
	}
	if in := f.Relist.InFlight; in != nil && in.Phase != facts.PhaseInspect && w.age(in.PhaseStart) > f.Config.RelistLateAfter() {
		return false
	}
	next := f.Modelled.EndsBy.Add(f.Config.RelistPeriod)
	for _, last := range f.Relist.RecentLists(1) {
		next = next.Add(last)
	}
	return next.Before(facts.LastSeen(f).Add(f.Config.RelistThreshold))
}

// statusRuleCounts reports whether the 30 s of the Status rule are running out: its last good
// answer is late, the next one is known to fail, it fails or hangs beside calls that are answered,
// or the relist is in trouble and nothing speaks for the next Status.
func (w *view) statusRuleCounts() bool {
	if w.age(cmp.Or(w.f.Status.LastGood, w.f.Started)) > statusLate || w.statusWillFail() {
		return true
	}
	down := w.link != linkAnswers && w.link != linkUnsettled
	return w.status == statusAlone || w.relistTrouble() && (w.status != statusOK || down)
}
