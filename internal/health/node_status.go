package health

import (
	"cmp"
	"time"
)

// VersionCheck is how Version calls end. The kubelet's node status update waits for the end of one.
type VersionCheck struct {
	// HangsSince is the start of the first of the calls in a row that got no answer; Ended is
	// when a call last ended otherwise: with an answer, or with an error at once.
	HangsSince time.Time `json:"hangs_since,omitzero"`
	Ended      time.Time `json:"ended,omitzero"`
}

// NodeStatus is the Ready condition by the model of the kubelet: see NodeWriter.
type NodeStatus struct {
	NotReady bool `json:"not_ready"` // true when the Ready condition in the API is certainly False
	// Unknown is true where the condition is, or will be, Unknown: the node controller writes it.
	Unknown bool   `json:"unknown,omitzero"`
	Message string `json:"message,omitzero"` // of the condition as last written, "" while Ready
	// These bound when the condition turns False if nothing changes, and True again; zero for never.
	NotReadyFrom time.Time `json:"not_ready_from,omitzero"`
	NotReadyBy   time.Time `json:"not_ready_by,omitzero"`
	ReadyFrom    time.Time `json:"ready_from,omitzero"`
	ReadyBy      time.Time `json:"ready_by,omitzero"`
}

// msgSilent is the message of a condition that the node controller has written.
const msgSilent = "Kubelet stopped posting node status."

// silent reports whether the kubelet gave no answer to the last look. One whose check fails answers.
func (k *Kubelet) silent() bool {
	return k != nil && !k.AnsweredAt.IsZero() && k.At.After(k.AnsweredAt)
}

// gone reports whether a silent kubelet certainly writes nothing; a slow one may write.
func (s *NodeWriter) gone(w *view) bool {
	k := w.f.Evidence.Kubelet
	return k.silent() && (k.Refused || w.unanswered(s.silent, kubeletGone))
}

// controllerWrites adds the node controller's writes: a kubelet that does not run renews no lease.
func (s *NodeWriter) controllerWrites(w *view, out *NodeStatus) {
	k := w.f.Evidence.Kubelet
	if !k.silent() {
		s.silent = time.Time{}
		if !s.unknown {
			return
		}
		s.back = cmp.Or(s.back, w.now)
		_, period := w.f.Config.statusPeriod()
		readyBy := s.back.Add(period + writerSlack)
		if s.unknown = !s.notReady && (!w.kubelet.nodeReady || w.now.Before(readyBy)); s.unknown {
			*out = NodeStatus{NotReady: true, Unknown: true, Message: msgSilent}
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
		*out = NodeStatus{NotReady: true, Unknown: true, Message: msgSilent}
	case w.age(s.silent) < kubeletGone: // it may restart
	case out.NotReady: // False, and then Unknown
		out.ReadyFrom, out.ReadyBy = time.Time{}, time.Time{}
	default:
		*out = NodeStatus{NotReadyFrom: laterOf(from, w.now), NotReadyBy: by, Unknown: true}
	}
}

// predict sets what the API shows and will show, and when.
func (v *Verdict) predict(w *view) {
	if v.State == StateUnknown {
		v.NodeReady = w.previous == nil || w.previous.NodeReady // as it was last known
		return
	}
	holds := w.kubelet.nodeReady
	fails := w.rulesFailAt()
	if !holds && v.State != StateStarting {
		fails = w.now
	}
	if !fails.IsZero() && v.State != StateHealthy {
		v.RulesFailIn = w.until(fails)
	}
	ns := w.f.NodeStatus
	if ns == nil || v.State == StateStarting {
		// Nothing is known of the node status update but its period.
		v.NodeReady, v.KubeletMessage = holds, w.kubelet.message
		if v.RulesFailIn != nil {
			v.NotReadyIn, v.NotReadyInLatest = w.until(fails), w.until(fails)
			if holds || v.State == StateStarting {
				_, period := w.f.Config.statusPeriod()
				v.NotReadyInLatest = w.until(fails.Add(period))
			}
		}
		return
	}
	v.NodeReady, v.KubeletMessage = !ns.NotReady, ns.Message
	switch {
	case v.State == StateHealthy:
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
func (w *view) factsAt(t time.Time) *Facts {
	f := *w.f
	if !w.statusRuleCounts() && !f.Status.LastGood.IsZero() {
		f.Status.LastGood = t
	}
	if !w.relistTrouble() && !LastSeen(&f).IsZero() {
		f.Relist.LastSeen, f.Modelled.LastSeen = t, t
	}
	return &f
}
