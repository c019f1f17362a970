package relist

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// showBeside is the age from which a list beside the relists is shown as the one
// under way.
const showBeside = 500 * time.Millisecond

// Facts returns the state of the loop as of now: plegd's own relists, and the model of
// the kubelet's. timeout is the limit of one call, throttled the loop's Throttled, which is asked only while a call is
// under way.
func (s *Snapshot) Facts(t time.Time, timeout time.Duration, throttled func() time.Duration) (facts.Relist, facts.Modelled) {
	throttled = sync.OnceValue(throttled)
	r := facts.Relist{
		Attempts: s.Attempts, LastSeen: s.Listed, Failures: s.Failures, AnsweredSince: s.AnsweredSince,
		Lists: s.Lists, Reinspect: s.Reinspect, InFlight: s.inFlight(t, throttled),
	}
	m := facts.Modelled{LastSeen: s.LastSeen, BusySince: s.Relist.Start}
	if s.Relist.Phase == facts.PhaseInspect {
		m.InspectingSince = s.Relist.PhaseStart
	}
	for _, i := range slices.Concat(s.Inspections, s.Extra) {
		p, began, finished := i.State()
		if began && !finished {
			p.Throttled = heldFor(t.Sub(p.CalledAt()), throttled()-time.Duration(i.throttledBefore.Load()))
			r.Inspecting = append(r.Inspecting, p)
		}
	}
	slices.SortFunc(r.Inspecting, func(a, b facts.PodInspection) int { return a.Start.Compare(b.Start) })
	r.Inspecting = slices.Clone(r.Inspecting[:min(len(r.Inspecting), facts.MaxPods)])
	m.Inspecting, m.EndsBy = s.remaining(t, timeout)
	if last := s.Last; last != nil {
		r.Last = &last.RelistResult
		r.Slowest = slowest(last.Inspections, facts.MaxPods, false)
		r.Failing = slowest(last.Inspections, facts.MaxPods, true)
	}
	r.Failing = append(slowest(s.Extra, facts.MaxPods, true), r.Failing...)
	r.Failing = r.Failing[:min(len(r.Failing), facts.MaxPods)]
	switch {
	case s.Beside.Failures > 0 && s.Failures == 0:
		r.Failures = s.Beside.Failures
		r.Last = &s.Beside.Last.RelistResult
	case s.Failures > 0 && s.Listed.After(s.Last.Start): // a later list beside the relists succeeded
		r.Failures = 0
	}
	return r, m
}

// inFlight returns the relist under way, nil between two: a list, in the relist or
// beside it, or else the inspections.
func (s *Snapshot) inFlight(t time.Time, throttled func() time.Duration) *facts.InFlight {
	relist := s.Relist
	diagnostic := s.Beside.underWay
	listing := relist.Phase != "" && relist.Phase != facts.PhaseInspect
	besideShows := diagnostic.Phase != "" && t.Sub(diagnostic.PhaseStart) >= showBeside
	if besideShows && (!listing || diagnostic.PhaseStart.Before(relist.PhaseStart)) {
		return diagnostic.shown(t, throttled())
	}
	if relist.Phase == "" {
		return nil
	}
	relist.Pods = len(s.Inspections)
	relist.Inspected = relist.Pods - len(s.waiting())
	return relist.shown(t, throttled())
}

// remaining returns the number of inspections that have not ended, and the estimated end of the
// last one: by the mean duration of the ended ones, or with the whole timeout for each if the one
// under way is stuck. Zero without inspections.
func (s *Snapshot) remaining(t time.Time, timeout time.Duration) (n int, end time.Time) {
	waiting := s.waiting()
	n = len(waiting)
	if n == 0 {
		return 0, end
	}
	call := cmp.Or(waiting[0].CallStart, t)
	done := len(s.Inspections) - n
	if done == 0 || t.Sub(call) >= stuckAfter {
		return n, call.Add(timeout * time.Duration(n))
	}
	return n, t.Add(t.Sub(s.Relist.PhaseStart) * time.Duration(n) / time.Duration(done))
}

// waiting returns the inspections of the relist that have not ended: the one under way first.
func (s *Snapshot) waiting() (out []facts.PodInspection) {
	for _, i := range s.Inspections {
		if p, _, finished := i.State(); !finished {
			out = append(out, p)
		}
	}
	return out
}

// slowest returns the n slowest inspections, or failed inspections, that ended.
func slowest(inspections []*Inspection, n int, failed bool) (out []facts.PodInspection) {
	for _, i := range inspections {
		if p, _, finished := i.State(); finished && (!failed || p.Err != nil) {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b facts.PodInspection) int { return cmp.Compare(b.Duration, a.Duration) })
	return slices.Clone(out[:min(len(out), n)]) // the others are not kept
}
