package health

import (
	"cmp"
	"slices"
	"time"
)

// reliableGap is how long plegd may have been away for restored times to be
// taken as they are. After a longer absence nothing is concluded from them
// until plegd has seen for itself how the runtime answers.
const reliableGap = 10 * time.Second

// Judge makes the verdict of the facts at now. previous is the verdict before
// it, nil for the first: it has since when a state or a reason is active, and
// keeps a reason from flapping at its threshold.
func Judge(f *Facts, now time.Time, previous *Verdict) *Verdict {
	k := rules(f, now)
	v := &Verdict{
		PLEGHealthy: k.plegHealthy, SyncLoopAllowed: k.syncLoopAllowed,
		Predicted: Predicted{RulesOK: k.nodeReady, Started: f.KubeletStarted},
		LastSeen:  f.Relist.LastSeen, ModelledLastSeen: f.Modelled.LastSeen, Threshold: f.Config.RelistThreshold,
		Since: now, Active: []Active{},
	}
	if !v.LastSeen.IsZero() {
		v.LastSeenAge = now.Sub(v.LastSeen)
	}
	if !v.ModelledLastSeen.IsZero() {
		v.ModelledAge = now.Sub(v.ModelledLastSeen)
	}

	w := newView(f, now, previous)
	starting := starting(w)
	if w.on(sigFirstAttemptMade) {
		v.matchTable(w)
		if !v.suffers() {
			v.fallBack(w, starting, k)
		}
	} else if starting || !k.nodeReady {
		v.first(activated(w, reasonOf(Starting), w.startingEvidence()))
	}
	v.rank(w)
	v.explain(w)
	if v.Reason != "" {
		if next := cmp.Or(reasonOf(v.Reason).nextHere(w), w.chainNext(v.Reason)); next != "" {
			v.Next = next
		}
	}

	switch {
	case starting:
		v.State = StateStarting
	case !k.nodeReady:
		v.State = StateUnhealthy
	case v.suffers():
		v.State = StateDegraded
	default:
		v.State = StateHealthy
	}
	v.predict(w, k)
	v.Steps = Steps(f, v)
	v.Signals = w.states()
	if previous != nil && previous.State == v.State {
		v.Since = previous.Since
	}
	return v
}

// matchTable activates every reason that the table finds.
func (v *Verdict) matchTable(w *view) {
	for i := range table {
		if !table[i].holdsFor(w.f.Runtime) {
			continue
		}
		if evidence := table[i].match(w); evidence != nil && !w.waitsForDocker(table[i].ID) {
			v.Active = append(v.Active, activated(w, &table[i], evidence))
		}
	}
}

// fallBack names what stands when no row of the table matches.
func (v *Verdict) fallBack(w *view, starting bool, k kubelet) {
	before := w.recentPrimary()
	switch {
	case before != nil && w.f.Relist.Failures > 0:
		// The connection is up again, a relist has yet to succeed.
		v.first(*before)
	case before != nil && w.previous.State == StateUnhealthy && !k.nodeReady && w.on(sigJustAnswered):
		// Answered again, and by its rules the kubelet waits for the next relist or
		// the next Status.
		v.first(*before)
	case w.on(sigAnsweringAgain):
		// It has just answered the first call after a hang of everything.
		if before != nil {
			v.first(*before)
		}
	case w.troubleFor() >= unknownAfter || !starting && !k.nodeReady:
		v.first(activated(w, reasonOf(Unknown), w.callEvidence()))
	case starting:
		v.first(activated(w, reasonOf(Starting), w.startingEvidence()))
	}
}

// keepFor is how long a reason is kept after its evidence was last true. After
// that the node is judged by what the evidence says then.
const keepFor = 3 * time.Second

// recentPrimary returns the primary reason of the verdict before, nil where it
// has none that names a cause, or where its evidence is too old to be kept.
func (w *view) recentPrimary() *Active {
	if w.previous == nil || len(w.previous.Active) == 0 {
		return nil
	}
	a := w.previous.Active[0]
	if a.Severity == SeverityInfo || a.ID == Unknown || w.age(a.Seen) >= keepFor {
		return nil
	}
	return &a
}

// suffers reports whether a reason is active that is more than information.
func (v *Verdict) suffers() bool {
	return slices.ContainsFunc(v.Active, func(a Active) bool { return a.Severity != SeverityInfo })
}

// CloserLook reports whether the verdict calls for looking at the node more often: it
// is not healthy, and not only for what grows over hours.
func (v *Verdict) CloserLook() bool {
	return v.State != StateHealthy && (v.State != StateDegraded || slices.ContainsFunc(v.Active, func(a Active) bool {
		return a.Severity != SeverityInfo && !reasonOf(a.ID).gradual
	}))
}

// first makes a reason active before those that only inform.
func (v *Verdict) first(a Active) { v.Active = slices.Insert(v.Active, 0, a) }

// activated returns a reason that is active now.
func activated(w *view, r *Reason, evidence []string) Active {
	a := Active{ID: r.ID, Severity: r.severity(w), Since: w.now, Seen: w.now, Evidence: evidence}
	if was := w.previous.active(r.ID); was != nil {
		a.Since = was.Since
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

// rank puts the primary reason first: the one that no other active reason
// outranks, by the table's order where there are several. A reason that it
// does not outrank fits the evidence as well, and is the runner-up.
//
// A cause that the chain of waiting proves comes before the hang that follows from
// it, whatever the table says of the two where there is no chain.
func (v *Verdict) rank(w *view) {
	primary := slices.IndexFunc(v.Active, func(a Active) bool {
		return !slices.ContainsFunc(v.Active, func(b Active) bool { return w.outranks(b.ID, a.ID) })
	})
	if primary < 0 {
		return
	}
	p := v.Active[primary]
	r := reasonOf(p.ID)
	for _, id := range suffered {
		if v.active(id) != nil && w.outranks(p.ID, id) {
			v.Symptom = id
			break
		}
	}
	if v.Symptom != "" && r.SeverityAsCause != "" {
		p.Severity = r.SeverityAsCause
	}
	v.Active = slices.Insert(slices.Delete(v.Active, primary, primary+1), 0, p)
	v.Reason, v.Next = r.ID, w.f.nodeSteps(nil).Replace(r.ForRuntime(w.f.Runtime).Next)
	for _, a := range v.Active[1:] {
		if a.Severity == p.Severity && !w.outranks(p.ID, a.ID) {
			v.RunnerUp = a.ID
			break
		}
	}
}

// outranks reports whether a reason comes before another one.
func (w *view) outranks(id, other string) bool {
	cause := w.chainCause()
	if other == cause && slices.Contains(symptoms, id) {
		return false
	}
	if !w.shimHoldsUp() { // it is another pod's shim
		switch {
		case id == ShimStuck && other == PodInspectionStall:
			return false
		case id == PodInspectionStall && other == ShimStuck:
			return true
		}
	}
	return id == cause && slices.Contains(symptoms, other) || reasonOf(id).outranks(other)
}

// starting reports whether it is too early for a verdict: until the first
// success, or until one of the kubelet's rules has had its full time since
// plegd started.
func starting(w *view) bool {
	f := w.f
	age := w.now.Sub(f.Started)
	seen := LastSeen(f)
	if f.KubeletStarted.After(f.Started) {
		seen = f.Relist.LastSeen // plegd has watched for longer than that kubelet runs
	}
	if !w.on(sigFirstAttemptMade) && LastSeen(f).IsZero() {
		return true
	}
	if f.UnobservedGap > reliableGap && !w.on(sigSettled) {
		return true
	}
	switch {
	case f.Status.Answered && (!f.Status.RuntimeReady.Good() || !f.Status.NetworkReady.Good()):
		return false // these rules take no time
	case seen.IsZero() && age > f.Config.RelistThreshold:
		return false
	case f.Status.LastGood.IsZero() && age >= RuntimeDownAfter:
		return false
	}
	return seen.IsZero() || f.Status.LastGood.IsZero()
}

// rulesFailAt returns when the first of the kubelet's rules fails, as far as
// anything points that way; ok is false while nothing does.
func (w *view) rulesFailAt() (at time.Time, ok bool) {
	f := w.f
	consider := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	if w.on(sigRelistTrouble) && !w.on(sigRelistEndsInTime) {
		consider(orElse(LastSeen(f), f.Started).Add(f.Config.RelistThreshold))
	}
	if w.on(sigStatusRuleCounts) {
		consider(orElse(f.Status.LastGood, f.Started).Add(RuntimeDownAfter))
	}
	return at, ok
}

// relistEndsInTime reports whether the modelled relist, which inspects, is known to end
// so early that the next one begins before the threshold.
func (w *view) relistEndsInTime() bool {
	f := w.f
	if f.Modelled.EndsBy.IsZero() || f.Relist.Failures > 0 || w.refused() != nil {
		return false
	}
	if in := f.Relist.InFlight; in != nil && in.Phase != PhaseInspect && w.age(in.PhaseStart) > f.Config.long() {
		return false
	}
	next := f.Modelled.EndsBy.Add(f.Config.RelistPeriod)
	if n := len(f.Relist.Lists); n > 0 {
		next = next.Add(f.Relist.Lists[n-1])
	}
	return next.Before(LastSeen(f).Add(f.Config.RelistThreshold))
}

// statusRuleCounts reports whether the 30 s of the Status rule are running out: its
// last good answer is late, the next one is known to fail, it fails or hangs beside
// calls that are answered, or the relist is in trouble and nothing speaks for the
// next Status.
func (w *view) statusRuleCounts() bool {
	if w.age(orElse(w.f.Status.LastGood, w.f.Started)) > statusLate || statusWillFail(w.f) {
		return true
	}
	if w.on(sigStatusTrouble) && w.on(sigAnsweredWhileStatusFails) {
		return true
	}
	return w.on(sigRelistTrouble) && (w.on(sigStatusTrouble) || w.on(sigNothingAnswers))
}

func orElse(t, other time.Time) time.Time {
	if t.IsZero() {
		return other
	}
	return t
}
