package kubelet

import (
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// Predict sets in the verdict what the API shows and will show, and when. A verdict whose state is unknown gets none,
// and neither does a kubelet without an API server.
func Predict(v *facts.Verdict, f *facts.Facts, t time.Time, seen Observations) {
	if v.State == facts.StateUnknown {
		return
	}
	m := newMoment(f, t, seen)
	fails := m.rulesFailAt()
	if !m.rules.NodeReady && v.State != facts.StateStarting {
		fails = t
	}
	if !fails.IsZero() && v.State != facts.StateHealthy {
		v.RulesFailIn = m.left(fails)
	}
	v.KubeletMessage = m.rules.Message
	v.NodeReady = m.rules.NodeReady || v.State == facts.StateStarting
	switch {
	case f.Evidence.KubeletProcess != nil && f.Evidence.KubeletProcess.Standalone:
		v.NodeReady = m.rules.NodeReady // nothing is written to an API
	case f.NodeStatus != nil:
		m.predictStatus(v, f.NodeStatus, fails)
	case v.RulesFailIn != nil:
		m.predictPeriod(v, fails)
	}
}

// predictPeriod sets the window where nothing is known of the node status update but its period.
func (m *moment) predictPeriod(v *facts.Verdict, fails time.Time) {
	_, period := m.f.Config.StatusPeriod()
	v.NotReadyIn = m.left(fails)
	v.NotReadyInLatest = m.left(fails)
	if v.NodeReady {
		v.NotReadyInLatest = m.left(fails.Add(period))
	}
}

// predictStatus sets what the model says. Before an update has ended, the message is the one that it will write.
func (m *moment) predictStatus(v *facts.Verdict, status *facts.NodeStatus, fails time.Time) {
	v.NodeReady = !status.NotReady
	v.KubeletMessage = status.Message
	rewritten := !m.unanswered(m.f.Version.HangsSince, VersionHangAfter) // each update writes it again, with its new times
	switch {
	case v.State == facts.StateHealthy:
	case status.NotReady:
		v.NotReadyIn = new(time.Duration)
		v.NotReadyInLatest = new(time.Duration)
	case !status.NotReadyFrom.IsZero():
		v.NotReadyIn = m.left(status.NotReadyFrom)
		v.NotReadyInLatest = m.left(status.NotReadyBy)
		v.KubeletMessage = m.nextMessage(status, fails)
	}
	if !m.rules.NodeReady && !status.Unknown && rewritten {
		v.KubeletMessage = m.rules.Message
	}
	if !status.ReadyFrom.IsZero() {
		v.ReadyIn = m.left(status.ReadyFrom)
		v.ReadyInLatest = m.left(status.ReadyBy)
	}
}

// nextMessage is the message that the update in the window will write.
func (m *moment) nextMessage(status *facts.NodeStatus, fails time.Time) string {
	if status.Unknown {
		return silentMessage
	}
	f := *m.f
	if m.failsEarly(status, fails) {
		fails = status.NotReadyFrom
		f.Config.RelistThreshold = f.Config.EarliestThreshold
	}
	if status.NotReadyBy.Before(fails) { // the kubelet has relisted before plegd did
		earlier := fails.Sub(status.NotReadyFrom)
		for _, seen := range []*time.Time{&f.Relist.LastSeen, &f.Modelled.LastSeen, &f.Modelled.Estimated} {
			if !seen.IsZero() {
				*seen = seen.Add(-earlier)
			}
		}
		fails = status.NotReadyFrom
	}
	first := facts.Later(status.NotReadyFrom, fails)
	t := first.Add(status.NotReadyBy.Sub(first) / 2)
	later := *m
	later.f = &f
	return Apply(later.factsAt(t), t).Message
}

// failsEarly reports whether the update in the window may be by the earliest threshold: one that has long passed has
// been written already, or is not that of this kubelet.
func (m *moment) failsEarly(status *facts.NodeStatus, fails time.Time) bool {
	c := &m.f.Config
	_, longest := c.StatusPeriod()
	written := lastSeen(m.f).Add(c.EarliestThreshold + longest + writerSlack)
	return c.EarliestThreshold > 0 && status.NotReadyFrom.Before(fails) && m.t.Before(written)
}

// left is the time from now to t, at least 0.
func (m *moment) left(t time.Time) *time.Duration { return new(max(t.Sub(m.t), 0)) }

// factsAt returns the facts of t if nothing changes: healthy parts stay healthy.
func (m *moment) factsAt(t time.Time) *facts.Facts {
	f := *m.f
	if !m.statusRuleCounts() && !f.Status.LastGood.IsZero() {
		f.Status.LastGood = t
	}
	if !m.relistTrouble() && !facts.LastSeen(&f).IsZero() {
		f.Relist.LastSeen = t
		f.Modelled.LastSeen = t
	}
	if !f.Modelled.Estimated.IsZero() {
		f.Modelled.LastSeen = f.Modelled.Estimated
	}
	return &f
}
