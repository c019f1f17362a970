package health

import (
	"slices"
	"time"
)

// reliableGap is how long plegd may have been away for restored times to be
// taken as they are. After a longer absence nothing is concluded from them
// until plegd has seen for itself how the runtime answers.
const reliableGap = 10 * time.Second

// Judge makes the verdict of the facts at now. previous is the verdict before
// it, nil for the first: it tells since when a state or a reason stands, and
// keeps a reason from flapping at its threshold.
func Judge(f *Facts, now time.Time, previous *Verdict) *Verdict {
	k := rules(f, now)
	v := &Verdict{
		KubeletMessage: k.message, PLEGHealthy: k.plegHealthy, SyncLoopAllowed: k.syncLoopAllowed, NodeReady: k.nodeReady,
		LastSeen: f.Relist.LastSeen, ModelledLastSeen: f.Modelled.LastSeen, Threshold: f.Config.RelistThreshold,
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
	for i := range table {
		if evidence := table[i].match(w); evidence != nil {
			v.activate(&table[i], evidence, now, previous)
		}
	}
	if len(v.Active) == 0 {
		v.fallBack(w, starting, k, now, previous)
	}
	v.rank()

	switch {
	case starting:
		v.State = StateStarting
	case !k.nodeReady:
		v.State = StateUnhealthy
	case slices.ContainsFunc(v.Active, func(a Active) bool { return a.Severity != SeverityInfo }):
		v.State = StateDegraded
	default:
		v.State = StateHealthy
	}
	v.NotReadyIn = notReadyIn(w, v)
	if previous != nil && previous.State == v.State {
		v.Since = previous.Since
	}
	return v
}

// fallBack names what stands when no row of the table matches.
func (v *Verdict) fallBack(w *view, starting bool, k kubelet, now time.Time, previous *Verdict) {
	switch {
	case previous != nil && w.f.Relist.Failures > 0 && previous.Reason != "" && previous.Reason != Starting && previous.Reason != Unknown:
		// On the way back: the connection is up again, a relist has yet to
		// succeed.
		v.Active = append(v.Active, previous.Active[0])
	case previous != nil && previous.State == StateUnhealthy && !k.nodeReady && len(previous.Active) > 0 && previous.Reason != Unknown && w.justAnswered():
		// Answered again, and by its rules the kubelet waits for the next relist or
		// the next Status.
		v.Active = append(v.Active, previous.Active[0])
	case w.troubleFor() >= unknownAfter || !starting && !k.nodeReady:
		v.activate(reasonOf(Unknown), w.callEvidence(), now, previous)
	case starting:
		v.activate(reasonOf(Starting), w.startingEvidence(), now, previous)
	}
}

func (v *Verdict) activate(r *Reason, evidence []string, now time.Time, previous *Verdict) {
	a := Active{ID: r.ID, Severity: r.Severity, Since: now, Evidence: evidence}
	if was := previous.active(r.ID); was != nil {
		a.Since = was.Since
	}
	v.Active = append(v.Active, a)
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
func (v *Verdict) rank() {
	primary := slices.IndexFunc(v.Active, func(a Active) bool {
		return !slices.ContainsFunc(v.Active, func(b Active) bool { return reasonOf(b.ID).outranks(a.ID) })
	})
	if primary < 0 {
		return
	}
	p := v.Active[primary]
	v.Active = slices.Insert(slices.Delete(v.Active, primary, primary+1), 0, p)
	r := reasonOf(p.ID)
	v.Reason, v.Next = r.ID, r.Next
	for _, a := range v.Active[1:] {
		if a.Severity == p.Severity && !r.outranks(a.ID) {
			v.RunnerUp = a.ID
			break
		}
	}
}

// starting tells whether it is too early for a verdict: until the first
// success, or until one of the kubelet's rules has had its full time since
// plegd started.
func starting(w *view) bool {
	f := w.f
	age := w.now.Sub(f.Started)
	if f.UnobservedGap > reliableGap && !w.settled() {
		return true
	}
	switch {
	case f.Status.Answered && (!f.Status.RuntimeReady.Good() || !f.Status.NetworkReady.Good()):
		return false // these rules take no time
	case LastSeen(f).IsZero() && age > f.Config.RelistThreshold:
		return false
	case f.Status.LastGood.IsZero() && age >= RuntimeDownAfter:
		return false
	}
	return LastSeen(f).IsZero() || f.Status.LastGood.IsZero()
}

// notReadyIn is the time until the first of the kubelet's rules trips, as far
// as anything points that way.
func notReadyIn(w *view, v *Verdict) *time.Duration {
	f := w.f
	if v.State != StateStarting && !v.NodeReady {
		return new(time.Duration)
	}
	var in *time.Duration
	consider := func(left time.Duration) {
		left = max(left, 0)
		if in == nil || left < *in {
			in = &left
		}
	}
	good := orElse(f.Status.LastGood, f.Started)
	late := w.now.Sub(good) > statusLate
	relist := w.relistTrouble()
	if relist {
		consider(f.Config.RelistThreshold - w.now.Sub(orElse(LastSeen(f), f.Started)))
	}
	// The Status rule counts before its last good answer is late, too, once
	// the relist is in trouble and nothing speaks for the next Status.
	if late || relist && (w.statusTrouble() || w.silent()) {
		consider(RuntimeDownAfter - w.now.Sub(good))
	}
	return in
}

func orElse(t, other time.Time) time.Time {
	if t.IsZero() {
		return other
	}
	return t
}
