package kubelet

import (
	"cmp"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// msgSilent is the message of a condition that the node controller has written.
const msgSilent = "Kubelet stopped posting node status."

// gone reports whether a silent kubelet certainly writes nothing; a slow one may write.
func (s *Model) gone(m *moment) bool {
	k := m.f.Evidence.Kubelet
	return k.Silent() && (k.Refused || m.unanswered(s.silent, GoneAfter))
}

// controllerWrites adds the node controller's writes: a kubelet that does not run renews no lease.
func (s *Model) controllerWrites(m *moment, out *facts.NodeStatus) {
	k := m.f.Evidence.Kubelet
	if !k.Silent() {
		s.silent = time.Time{}
		if !s.unknown {
			return
		}
		s.back = cmp.Or(s.back, m.t)
		_, period := m.f.Config.StatusPeriod()
		readyBy := s.back.Add(period + writerSlack)
		if s.unknown = !s.notReady && (!m.rules.NodeReady || m.t.Before(readyBy)); s.unknown {
			*out = facts.NodeStatus{NotReady: true, Unknown: true, Message: msgSilent}
			if m.rules.NodeReady {
				out.ReadyFrom, out.ReadyBy = m.t, readyBy
			}
		}
		return
	}
	s.silent, s.back = cmp.Or(s.silent, k.At), time.Time{}
	from := k.AnsweredAt.Add(nodeMonitorGrace - leasePeriod - writerSlack)
	by := s.silent.Add(nodeMonitorGrace + nodeMonitorPeriod + writerSlack)
	s.unknown = s.unknown || !m.t.Before(by)
	switch {
	case s.unknown:
		*out = facts.NodeStatus{NotReady: true, Unknown: true, Message: msgSilent}
	case m.age(s.silent) < GoneAfter: // it may restart
	case out.NotReady: // False, and then Unknown
		out.ReadyFrom, out.ReadyBy = time.Time{}, time.Time{}
	default:
		*out = facts.NodeStatus{NotReadyFrom: facts.Later(from, m.t), NotReadyBy: by, Unknown: true}
	}
}

// Predict sets in the verdict what the API shows and will show, and when. A verdict whose state is unknown gets none.
func Predict(v *facts.Verdict, f *facts.Facts, t time.Time, seen Observations) {
	if v.State != facts.StateUnknown {
		predict(v, newMoment(f, t, seen))
	}
}

func predict(v *facts.Verdict, m *moment) {
	holds := m.rules.NodeReady
	fails := m.rulesFailAt()
	if !holds && v.State != facts.StateStarting {
		fails = m.t
	}
	if !fails.IsZero() && v.State != facts.StateHealthy {
		v.RulesFailIn = m.until(fails)
	}
	ns := m.f.NodeStatus
	if ns == nil || v.State == facts.StateStarting {
		// Nothing is known of the node status update but its period.
		v.NodeReady, v.KubeletMessage = holds, m.rules.Message
		if v.RulesFailIn != nil {
			v.NotReadyIn, v.NotReadyInLatest = m.until(fails), m.until(fails)
			if holds || v.State == facts.StateStarting {
				_, period := m.f.Config.StatusPeriod()
				v.NotReadyInLatest = m.until(fails.Add(period))
			}
		}
		return
	}
	v.NodeReady, v.KubeletMessage = !ns.NotReady, ns.Message
	switch {
	case v.State == facts.StateHealthy:
	case ns.NotReady:
		v.NotReadyIn, v.NotReadyInLatest = new(time.Duration), new(time.Duration)
	case !ns.NotReadyFrom.IsZero():
		v.NotReadyIn, v.NotReadyInLatest = m.until(ns.NotReadyFrom), m.until(ns.NotReadyBy)
		if v.KubeletMessage = msgSilent; !ns.Unknown {
			from := facts.Later(ns.NotReadyFrom, fails)
			t := from.Add(ns.NotReadyBy.Sub(from) / 2)
			v.KubeletMessage = Apply(m.factsAt(t), t).Message
		}
	}
	if !holds && !ns.Unknown && !m.unanswered(m.f.Version.HangsSince, versionHangAfter) {
		v.KubeletMessage = m.rules.Message // each update writes it again, with its new times
	}
	if !ns.ReadyFrom.IsZero() {
		v.ReadyIn, v.ReadyInLatest = m.until(ns.ReadyFrom), m.until(ns.ReadyBy)
	}
}

// until is the time from now to t, at least 0.
func (m *moment) until(t time.Time) *time.Duration { return new(max(t.Sub(m.t), 0)) }

// factsAt returns the facts of t if nothing changes: healthy parts stay healthy.
func (m *moment) factsAt(t time.Time) *facts.Facts {
	f := *m.f
	if !m.statusRuleCounts() && !f.Status.LastGood.IsZero() {
		f.Status.LastGood = t
	}
	if !m.relistTrouble() && !facts.LastSeen(&f).IsZero() {
		f.Relist.LastSeen, f.Modelled.LastSeen = t, t
	}
	return &f
}
