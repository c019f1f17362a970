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
)

// reliableGap is how long plegd may have been away until restored times count no longer.
const reliableGap = 10 * time.Second

// Judge makes the verdict of the facts at now. previous is the verdict before it, nil for the first: it has since when
// a state or a reason is active, and keeps a reason from flapping at its threshold.
func Judge(f *Facts, now time.Time, previous *Verdict) *Verdict {
	w, at := newView(f, now, previous), Snapshot{At: now}
	k := w.kubelet
	v := &Verdict{
		PLEGHealthy: k.plegHealthy, SyncLoopAllowed: k.syncLoopAllowed,
		Predicted: Predicted{RulesOK: k.nodeReady, Started: f.KubeletStarted},
		LastSeen:  f.Relist.LastSeen, LastSeenAge: at.Age(f.Relist.LastSeen),
		ModelledLastSeen: f.Modelled.LastSeen, ModelledAge: at.Age(f.Modelled.LastSeen),
		Threshold: f.Config.RelistThreshold, Since: now, Active: []Active{},
	}
	w.starting, w.verdict, w.all = starting(w), v, []*view{w}
	for i := range f.Evidence.Hops {
		w.all = append(w.all, newView(f.At(f.Evidence.Hops[i].Socket), now, previous))
	}
	if w.firstAttemptMade() {
		v.match(w, false)
		v.hold(w)
		for _, a := range v.Active {
			if l := reasonOf(a.ID).Layer; a.Severity == SeverityCritical && (w.critical == 0 || l < w.critical) {
				w.critical = l
			}
		}
	}
	v.match(w, true)
	v.rank(w)
	if c := w.chainOf(v.Reason); c.first().Kind != "" {
		v.Chain, v.ChainEnd, v.Culprit = c.Links, c.Unknown, c.Culprit()
	}
	v.Next = v.next(w)

	switch {
	case v.blind(w):
		v.State = StateUnknown
	case w.starting:
		v.State = StateStarting
	case !k.nodeReady:
		v.State = StateUnhealthy
	case v.hasReason():
		v.State = StateDegraded
	default:
		v.State = StateHealthy
	}
	v.predict(w)
	v.Steps = v.steps(f)
	if previous != nil && previous.State == v.State {
		v.Since = previous.Since
	}
	return v
}

// next is what to do next: the row's with this node's own values, the wait chain's, or the general one of the page.
func (v *Verdict) next(w *view) (next string) {
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
	next = cmp.Or(next, w.chainNext(r.ID), at.f.nodeSteps(nil).Replace(r.Next))
	if h := at.hop; h != nil {
		next = strings.TrimSpace(fmt.Sprintf("At %s: %s %s", h.name(), next, h.Caution))
	}
	return next
}

// match activates the reasons that rows find, at the first hop: those that stand for themselves, or the fallbacks.
func (v *Verdict) match(w *view, last bool) {
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
				evidence = slices.Insert(evidence, 0, "behind the runtime: "+at.hop.name())
			}
			v.Active = append(v.Active, activated(at, r, evidence))
			break
		}
	}
}

// blind reports whether plegd cannot reach a runtime that others can, and nothing else is known to be wrong.
func (v *Verdict) blind(w *view) bool {
	held := w.previous != nil && w.previous.State == StateUnknown && v.Reason == w.previous.Reason
	return (held || w.blind()) && !slices.ContainsFunc(v.Active, func(a Active) bool {
		return a.Severity == SeverityCritical && a.ID != RuntimeSocketPermissionDenied && a.ID != RuntimeSocketMissing
	})
}

// blind reports whether a permission, or a path that is missing in its mounts, keeps plegd alone from the runtime.
func (w *view) blind() bool {
	return w.cause == CausePermissionDenied || w.cause == CauseMissing && w.hidden()
}

// hasReason reports whether a reason is active that is more than information.
func (v *Verdict) hasReason() bool {
	return slices.ContainsFunc(v.Active, func(a Active) bool { return a.Severity != SeverityInfo })
}

// CloserLook reports whether to sample the node more often: not while healthy, nor for what grows over hours.
func (v *Verdict) CloserLook() bool {
	return v.State != StateHealthy && (v.State != StateDegraded || slices.ContainsFunc(v.Active, func(a Active) bool {
		return a.Severity != SeverityInfo && !reasonOf(a.ID).is(gradual)
	}))
}

// activated returns a reason that is active now.
func activated(w *view, r *Reason, evidence lines) Active {
	a := Active{ID: r.ID, Severity: r.severity(w), Since: w.now, Seen: w.now, Evidence: evidence, Hop: w.f.Evidence.Socket}
	if was := w.previous.active(r.ID); was != nil {
		a.Since, a.Missed = was.Since, was.Missed
		if gap := w.age(was.Seen); gap > gapCounts && !r.is(gradual|event) {
			a.Missed += gap
		}
	}
	return a
}

// active returns a reason that stands, nil when it does not.
func (v *Verdict) active(id string) *Active {
	if v == nil {
		return nil
	}
	if i := slices.IndexFunc(v.Active, func(a Active) bool { return a.ID == id }); i >= 0 {
		return &v.Active[i]
	}
	return nil
}

// starting reports whether there is no success yet, and none of the kubelet's rules has had its full time.
func starting(w *view) bool {
	f, age, seen := w.f, w.age(w.f.Started), LastSeen(w.f)
	r, s, long := &f.Relist, &f.Status, f.Config.long()
	// The first relist and the first Status have ended, or have been in flight for long.
	settled := (r.Last != nil || r.InFlight != nil && w.age(r.InFlight.Start) > long) &&
		(s.Answered && !s.Restored || w.unanswered(s.InFlightSince, long) || s.LastErr != nil)
	if f.KubeletStarted.After(f.Started) {
		seen = f.Relist.LastSeen // plegd has watched for longer than that kubelet runs
	}
	switch {
	case !w.firstAttemptMade() && LastSeen(f).IsZero(), f.UnobservedGap > reliableGap && !settled:
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
		at = cmp.Or(LastSeen(w.f), w.f.Started).Add(w.f.Config.RelistThreshold)
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
	if in := f.Relist.InFlight; in != nil && in.Phase != PhaseInspect && w.age(in.PhaseStart) > f.Config.long() {
		return false
	}
	next := f.Modelled.EndsBy.Add(f.Config.RelistPeriod)
	for _, last := range f.Relist.recent(1) {
		next = next.Add(last)
	}
	return next.Before(LastSeen(f).Add(f.Config.RelistThreshold))
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
