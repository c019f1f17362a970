package kubelet

import (
	"cmp"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// reliableGap is how long plegd may have been away until restored times count no longer.
const reliableGap = 10 * time.Second

// statusAskedAgain is the age of the last good Status by which plegd has repeated a call that failed: one that fails
// every second time does not count down.
const statusAskedAgain = StatusPeriod + 1250*time.Millisecond

// Starting reports whether there is no success yet, and no kubelet rule has timed out yet.
func Starting(f *facts.Facts, t time.Time, seen Observations) bool {
	m := &moment{Observations: seen, f: f, t: t} // no rule is asked
	return m.starting()
}

func (m *moment) starting() bool {
	f := m.f
	s := &f.Status
	listed := facts.LastSeen(f)
	observed := m.age(f.Started)
	if !m.AttemptMade && listed.IsZero() || f.UnobservedGap > reliableGap && !m.settled() {
		return true
	}
	if s.Answered && !s.ConditionsGood() {
		return false // these rules take no time
	}
	if !m.settled() && observed < RuntimeDownAfter {
		return true
	}
	if observed > f.Config.RelistThreshold || s.LastGood.IsZero() && observed >= RuntimeDownAfter {
		return false
	}
	if f.KubeletStarted.After(f.Started) {
		listed = f.Relist.LastSeen // plegd has watched for longer than that kubelet runs
	}
	return listed.IsZero() || s.LastGood.IsZero()
}

// Settled reports whether the first relist and the first Status of plegd have ended, or have been in flight for long.
func Settled(f *facts.Facts, t time.Time) bool {
	m := &moment{f: f, t: t} // no rule is asked
	return m.settled()
}

// settled reports whether the first relist and the first Status have ended, or have been in flight for long.
func (m *moment) settled() bool {
	s := &m.f.Status
	limit := m.f.Config.RelistLateAfter()
	relistSettled := m.f.Relist.Last != nil || m.underWay(limit)
	statusSettled := s.Answered && !s.Restored || m.unanswered(s.InFlightSince, limit) || s.LastErr != nil
	return relistSettled && statusSettled
}

// rulesFailAt returns when the first of the kubelet's rules fails, zero while nothing points that way.
func (m *moment) rulesFailAt() time.Time { return facts.Earliest(m.relistFailsAt(), m.statusFailsAt()) }

// relistFailsAt returns when its last relist is too old, zero while nothing points that way.
func (m *moment) relistFailsAt() time.Time {
	if !m.relistTrouble() || m.relistEndsInTime() {
		return time.Time{}
	}
	return cmp.Or(lastSeen(m.f), m.f.Started).Add(m.f.Config.RelistThreshold)
}

// statusFailsAt returns when its last good Status is too old, zero while nothing points that way.
func (m *moment) statusFailsAt() time.Time {
	if !m.statusRuleCounts() {
		return time.Time{}
	}
	return cmp.Or(lastGood(m.f), m.f.Started).Add(RuntimeDownAfter)
}

// relistTrouble reports whether a relist has failed, or takes more than two periods, the kubelet's or plegd's.
func (m *moment) relistTrouble() bool {
	f := m.f
	limit := f.Config.RelistLateAfter()
	if f.Relist.Failures > 0 {
		return true
	}
	return m.underWay(limit)
}

// underWay reports whether a relist has been under way for longer than limit.
func (m *moment) underWay(limit time.Duration) bool {
	began := facts.RelistBegan(m.f)
	return m.unanswered(began, limit)
}

// relistEndsInTime reports whether the relist, which inspects, ends before the next one would come too late.
func (m *moment) relistEndsInTime() bool {
	f := m.f
	if f.Modelled.EndsBy.IsZero() || f.Relist.Failures > 0 {
		return false
	}
	list := f.Relist.InFlight
	if list != nil && list.Phase != facts.PhaseInspect && list.Waited(m.t) > f.Config.RelistLateAfter() {
		return false
	}
	next := f.Modelled.EndsBy.Add(f.Config.RelistPeriod)
	for _, last := range f.Relist.RecentLists(1) {
		next = next.Add(last)
	}
	return next.Before(lastSeen(f).Add(f.Config.RelistThreshold))
}

// statusRuleCounts reports whether the 30 s of the Status rule are running out: its last good
// answer is late, the next one is known to fail, it fails or hangs beside calls that are answered,
// or the relist is in trouble and nothing suggests that the next Status succeeds.
func (m *moment) statusRuleCounts() bool {
	if m.age(cmp.Or(m.f.Status.LastGood, m.f.Started)) > StatusLate || m.StatusWillFail || !StatusFailsSince(m.f).IsZero() {
		return true
	}
	failsStill := m.age(m.f.Status.LastGood) > statusAskedAgain
	return m.StatusAlone && failsStill || m.relistTrouble() && (m.StatusFails || m.Unreachable)
}
