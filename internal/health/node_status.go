package health

import (
	"cmp"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// msgSilent is the message of a condition that the node controller has written.
const msgSilent = "Kubelet stopped posting node status."

// gone reports whether a silent kubelet certainly writes nothing; a slow one may write.
func (s *NodeWriter) gone(w *view) bool {
	k := w.f.Evidence.Kubelet
	return k.Silent() && (k.Refused || w.unanswered(s.silent, kubeletGone))
}

// controllerWrites adds the node controller's writes: a kubelet that does not run renews no lease.
func (s *NodeWriter) controllerWrites(w *view, out *facts.NodeStatus) {
	k := w.f.Evidence.Kubelet
	if !k.Silent() {
		s.silent = time.Time{}
		if !s.unknown {
			return
		}
		s.back = cmp.Or(s.back, w.now)
		_, period := w.f.Config.StatusPeriod()
		readyBy := s.back.Add(period + writerSlack)
		if s.unknown = !s.notReady && (!w.kubelet.nodeReady || w.now.Before(readyBy)); s.unknown {
			*out = facts.NodeStatus{NotReady: true, Unknown: true, Message: msgSilent}
			if w.kubelet.nodeReady {
				out.ReadyFrom, out.ReadyBy = w.now, readyBy
			}
		}
		return
	}
	s.silent, s.back = cmp.Or(s.silent, k.At), time.Time{}
	from := k.AnsweredAt.Add(nodeMonitorGrace - leasePeriod - writerSlack)
	by := s.silent.Add(nodeMonitorGrace + nodeMonitorPeriod + writerSlack)
	s.unknown = s.unknown || !w.now.Before(by)
	switch {
	case s.unknown:
		*out = facts.NodeStatus{NotReady: true, Unknown: true, Message: msgSilent}
	case w.age(s.silent) < kubeletGone: // it may restart
	case out.NotReady: // False, and then Unknown
		out.ReadyFrom, out.ReadyBy = time.Time{}, time.Time{}
	default:
		*out = facts.NodeStatus{NotReadyFrom: laterOf(from, w.now), NotReadyBy: by, Unknown: true}
	}
}

// predict sets what the API shows and will show, and when.
func predict(v *facts.Verdict, w *view) {
	if v.State == facts.StateUnknown {
		v.NodeReady = w.previous == nil || w.previous.NodeReady // as it was last known
		return
	}
	holds := w.kubelet.nodeReady
	fails := w.rulesFailAt()
	if !holds && v.State != facts.StateStarting {
		fails = w.now
	}
	if !fails.IsZero() && v.State != facts.StateHealthy {
		v.RulesFailIn = w.until(fails)
	}
	ns := w.f.NodeStatus
	if ns == nil || v.State == facts.StateStarting {
		// Nothing is known of the node status update but its period.
		v.NodeReady, v.KubeletMessage = holds, w.kubelet.message
		if v.RulesFailIn != nil {
			v.NotReadyIn, v.NotReadyInLatest = w.until(fails), w.until(fails)
			if holds || v.State == facts.StateStarting {
				_, period := w.f.Config.StatusPeriod()
				v.NotReadyInLatest = w.until(fails.Add(period))
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
		v.NotReadyIn, v.NotReadyInLatest = w.until(ns.NotReadyFrom), w.until(ns.NotReadyBy)
		if v.KubeletMessage = msgSilent; !ns.Unknown {
			from := laterOf(ns.NotReadyFrom, fails)
			t := from.Add(ns.NotReadyBy.Sub(from) / 2)
			v.KubeletMessage = rules(w.factsAt(t), t).message
		}
	}
	if !holds && !ns.Unknown && !w.unanswered(w.f.Version.HangsSince, versionHangAfter) {
		v.KubeletMessage = w.kubelet.message // each update writes it again, with its new times
	}
	if !ns.ReadyFrom.IsZero() {
		v.ReadyIn, v.ReadyInLatest = w.until(ns.ReadyFrom), w.until(ns.ReadyBy)
	}
}

// until is the time from now to t, at least 0.
func (w *view) until(t time.Time) *time.Duration { return new(max(t.Sub(w.now), 0)) }

// factsAt returns the facts of t if nothing changes: healthy parts stay healthy.
func (w *view) factsAt(t time.Time) *facts.Facts {
	f := *w.f
	if !w.statusRuleCounts() && !f.Status.LastGood.IsZero() {
		f.Status.LastGood = t
	}
	if !w.relistTrouble() && !facts.LastSeen(&f).IsZero() {
		f.Relist.LastSeen, f.Modelled.LastSeen = t, t
	}
	return &f
}
