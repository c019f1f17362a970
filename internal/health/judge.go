// Package health turns facts into a verdict: it holds the one table of reasons, and applies the rules of
// internal/kubelet. It is pure: plain values in, plain values out, and the time is a parameter. It reads no file.
package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/kubelet"
)

// Observed is what the facts show at a moment. The model of the kubelet completes the facts by it before they are judged.
type Observed struct {
	kubelet.Observations
	runtime *signals
}

// Observe reads the facts at a moment. previous is the verdict before it, nil for the first: it has since when a state or
// a reason is active, and keeps a reason from flapping at its threshold.
func Observe(f *facts.Facts, moment time.Time, previous *facts.Verdict) *Observed {
	s := newSignals(f, moment, previous)
	return &Observed{Observations: s.observations(), runtime: s}
}

// Judge makes the verdict of the facts at a moment, as they are.
func Judge(f *facts.Facts, moment time.Time, previous *facts.Verdict) *facts.Verdict {
	return Observe(f, moment, previous).Judge()
}

// Judge makes the verdict of the facts, which the model of the kubelet may have completed since Observe.
func (o *Observed) Judge() *facts.Verdict {
	s := o.runtime
	f := s.f
	moment := s.moment
	previous := s.previous
	s.kubelet = kubelet.Apply(f, moment)
	s.starting = kubelet.Starting(f, moment, o.Observations)
	sets := []*signals{s}
	for i := range f.Evidence.Hops {
		hop := newSignals(f.At(f.Evidence.Hops[i].Socket), moment, previous)
		hop.kubelet = s.kubelet
		sets = append(sets, hop)
	}
	v := newVerdict(s)
	if s.attempted {
		v.Active = holdPrevious(matchRows(sets), s)
	}
	v.Active = matchFallbacks(v.Active, s)
	rankReasons(v, s)
	c := s.chainOf(v.Reason, v.Hop, signalsAt(sets, v.Hop).finding(v.Reason))
	if c.First().Kind != "" {
		v.WaitChain = facts.WaitChain{Chain: c.Links, ChainEnd: c.Unknown, Culprit: c.Culprit()}
	}
	v.Next = nextStep(v, sets, c)
	if v.Culprit == nil && s.keepsCause(v) {
		v.WaitChain = previous.WaitChain
		v.Next = previous.Next
	}
	addCauses(v, sets)
	v.State = stateOf(v, s)
	if v.State == facts.StateUnknown {
		v.NodeReady = previous == nil || previous.NodeReady // as it was last known
	}
	kubelet.Predict(v, f, moment, o.Observations)
	v.Steps = stepsOf(v, f)
	if previous != nil && previous.State == v.State {
		v.Since = previous.Since
	}
	return v
}

// keepsCause reports whether what the previous verdict knew of the cause still counts: of a reason that is held, and of a
// process that is stuck again, whose chain is not followed yet.
func (s *signals) keepsCause(v *facts.Verdict) bool {
	p := s.previous
	if v.Reason == "" || p == nil || p.Reason != v.Reason || len(p.Chain) == 0 {
		return false
	}
	first := p.Chain[0].PID
	return v.Active[0].Held || first != 0 && first == Subject(s.f.At(v.Hop), v.Reason)
}

// newVerdict returns a verdict with what does not depend on reasons.
func newVerdict(s *signals) *facts.Verdict {
	f := s.f
	snapshot := facts.Snapshot{At: s.moment}
	return &facts.Verdict{
		PLEGHealthy:      s.kubelet.PLEGHealthy,
		SyncLoopAllowed:  s.kubelet.SyncLoopAllowed,
		Predicted:        facts.Predicted{RulesOK: s.kubelet.NodeReady, Started: f.KubeletStarted},
		LastSeen:         f.Relist.LastSeen,
		LastSeenAge:      snapshot.Age(f.Relist.LastSeen),
		ModelledLastSeen: f.Modelled.LastSeen,
		ModelledAge:      snapshot.Age(f.Modelled.LastSeen),
		Threshold:        f.Config.RelistThreshold,
		Since:            s.moment,
		Active:           []facts.Active{},
	}
}

// stateOf returns the verdict in one word.
func stateOf(v *facts.Verdict, s *signals) facts.State {
	switch {
	case cannotSee(v, s):
		return facts.StateUnknown
	case s.starting:
		return facts.StateStarting
	case !s.kubelet.NodeReady:
		return facts.StateUnhealthy
	case hasReason(v.Active):
		return facts.StateDegraded
	}
	return facts.StateHealthy
}

// nextStep returns what to do next: the row's step with this node's own values, the wait chain's, or the page's.
// c is the chain that is about the reason.
func nextStep(v *facts.Verdict, sets []*signals, c *facts.Chain) string {
	if v.Reason == "" {
		return ""
	}
	s := signalsAt(sets, v.Hop)
	next := ownStep(v.Reason, v.Hop, sets, c)
	if next == "" {
		next = pageNext(s.f, reasonOf(v.Reason), v.Chain)
	}
	if h := s.hop; h != nil {
		next = strings.TrimSpace(fmt.Sprintf("At %s: %s %s", h.Name(), next, h.Caution))
	}
	return next
}

// ownStep is the row's step with this node's own values, or the wait chain's; "" for neither.
func ownStep(id, hop string, sets []*signals, c *facts.Chain) string {
	r := reasonOf(id)
	if r.NodeNext != nil {
		if next := r.NodeNext(signalsAt(sets, hop)); next != "" {
			return next
		}
	}
	return sets[0].chainNext(id, c)
}

// signalsAt returns the signals of the hop at a socket, the runtime's for "".
func signalsAt(sets []*signals, socket string) *signals {
	for _, s := range sets[1:] {
		if s.hop.Socket == socket {
			return s
		}
	}
	return sets[0]
}

// pageNext is the Next of a reason's page with the node's values, or the page's one line where the node does not show them all.
func pageNext(f *facts.Facts, r *Reason, chain []facts.Link) string {
	if next, known := nodeWords(f, r.ID, chain).fill(r.Next); known {
		return next
	}
	return strings.ToUpper(r.NextLine[:1]) + r.NextLine[1:] + "."
}

// matchRows returns the reasons that match, each at the first hop of the CRI call path at which it does.
func matchRows(sets []*signals) []facts.Active {
	active := []facts.Active{}
	for i := range table {
		if a := matchRow(&table[i], sets); a != nil {
			active = append(active, *a)
		}
	}
	return withoutSuppressed(active)
}

// withoutSuppressed leaves out the reasons that another one suppresses at the same hop.
func withoutSuppressed(active []facts.Active) []facts.Active {
	suppressed := func(a facts.Active) bool {
		return slices.ContainsFunc(active, func(stronger facts.Active) bool {
			return stronger.Hop == a.Hop && slices.Contains(reasonOf(stronger.ID).Suppresses, a.ID)
		})
	}
	kept := []facts.Active{}
	for _, a := range active {
		if !suppressed(a) {
			kept = append(kept, a)
		}
	}
	return kept
}

// matchRow returns a reason where it matches, else nil.
func matchRow(r *Reason, sets []*signals) *facts.Active {
	for _, s := range sets {
		if r.Match == nil || !r.appliesTo(s) {
			continue
		}
		evidence := r.Match(s)
		if evidence == nil {
			continue
		}
		if s.hop != nil {
			evidence = slices.Insert(evidence, 0, "behind the runtime: "+s.hop.Name())
		}
		return activated(s, r, evidence)
	}
	return nil
}

// findings are what the rows that are asked first have found.
type findings struct {
	problem  bool        // a reason that is more than information
	critical facts.Layer // the lowest layer that has a critical reason, 0 for none
	reported bool        // a reason that the runtime reports itself
}

func findingsOf(active []facts.Active) findings {
	out := findings{problem: hasReason(active)}
	for _, a := range active {
		r := reasonOf(a.ID)
		out.reported = out.reported || r.Reported
		if a.Severity == facts.SeverityCritical && (out.critical == 0 || r.Layer < out.critical) {
			out.critical = r.Layer
		}
	}
	return out
}

// matchFallbacks appends the reasons that match for what the active ones do not explain.
func matchFallbacks(active []facts.Active, s *signals) []facts.Active {
	for i := range table {
		r := &table[i]
		if r.Fallback == nil {
			continue
		}
		if evidence := r.Fallback(s, findingsOf(active)); evidence != nil {
			active = append(active, *activated(s, r, evidence))
		}
	}
	return active
}

// appliesTo reports whether the reason is asked of the runtime, or of the hop that the signals are of.
func (r *Reason) appliesTo(s *signals) bool {
	if s.hop != nil {
		return r.OnHops
	}
	return !s.waitsForHops(r.ID)
}

// cannotSee reports whether plegd cannot reach a runtime that others can, and nothing else is known to be wrong.
func cannotSee(v *facts.Verdict, s *signals) bool {
	held := s.previous != nil && s.previous.State == facts.StateUnknown && v.Reason == s.previous.Reason
	return (held || s.blind) && !slices.ContainsFunc(v.Active, func(a facts.Active) bool {
		return a.Severity == facts.SeverityCritical && a.ID != RuntimeSocketPermissionDenied && a.ID != RuntimeSocketMissing
	})
}

// hasReason reports whether a reason is active that is more than information.
func hasReason(active []facts.Active) bool {
	return slices.ContainsFunc(active, func(a facts.Active) bool { return a.Severity != facts.SeverityInfo })
}

// CloserLook reports whether to sample the node more often: not while healthy, nor for what grows over
// hours, nor for what the runtime itself reports in its status while its calls are answered.
func CloserLook(v *facts.Verdict) bool {
	if v.State != facts.StateDegraded && v.State != facts.StateUnhealthy {
		return v.State != facts.StateHealthy
	}
	return slices.ContainsFunc(v.Active, func(a facts.Active) bool {
		r := reasonOf(a.ID)
		return a.Severity != facts.SeverityInfo && !r.Gradual && !r.Reported
	})
}

// activated returns a reason that is active now.
func activated(s *signals, r *Reason, evidence lines) *facts.Active {
	for _, m := range s.kernelMessages(r.Logged) {
		evidence.text(kernelText(&m))
	}
	evidence.text(s.unreadText(r))
	a := facts.Active{ID: r.ID, Severity: r.severity(s), Since: s.moment, Seen: s.moment, Evidence: evidence, Hop: s.f.Evidence.Socket}
	earlier := s.previous.ActiveReason(r.ID)
	if earlier == nil {
		return &a
	}
	a.Since = earlier.Since
	a.Missed = earlier.Missed
	gap := s.age(earlier.Seen)
	if earlier.Held && gap > minGap && !r.Gradual && !r.Event {
		a.Missed += gap
	}
	return &a
}
