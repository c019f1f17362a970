package health

import "time"

// A kubelet that does not run writes nothing. The node controller of the control
// plane then sets the Ready condition to Unknown
// (pkg/controller/nodelifecycle/node_lifecycle_controller.go, tryUpdateNodeHealth):
// it looks every nodeMonitorPeriod, notes when it first sees a renewed lease, and
// waits for nodeMonitorGrace from then on. The node cannot see its settings: these
// are the defaults since Kubernetes 1.32.
const (
	// leasePeriod lies between two renewals by the kubelet, plus up to 4 %
	// (nodeLeaseDurationSeconds, 40 s, by 4).
	leasePeriod       = 10 * time.Second
	nodeMonitorPeriod = 5 * time.Second
	nodeMonitorGrace  = 50 * time.Second
)

// msgSilent is the message of a condition that the node controller has written.
const msgSilent = "Kubelet stopped posting node status."

// silence is the time in which the node's kubelet answers nothing: it has ended, it
// is stopped, or it has not come so far as to serve.
type silence struct {
	// first is the first look that got no answer, zero while the kubelet answers.
	first time.Time
	// unknown is true from when the Ready condition is Unknown, for every phase of lease
	// and controller, until a kubelet that answers again has written it; back is since
	// when that one answers.
	unknown bool
	back    time.Time
}

// silent reports whether the kubelet gave no answer of any kind to the last look at
// it. One whose check fails answers, and renews its lease.
func (k *Kubelet) silent() bool {
	return k != nil && !k.AnsweredAt.IsZero() && k.At.After(k.AnsweredAt)
}

// gone reports whether a silent kubelet certainly writes nothing: a kubelet that is
// only slow to answer may still write.
func (s *silence) gone(w *view) bool {
	k := w.f.Evidence.Kubelet
	return k.silent() && (k.Refused || s.long(w))
}

// long reports whether the kubelet has been silent for longer than a restart takes.
func (s *silence) long(w *view) bool { return !s.first.IsZero() && w.age(s.first) >= kubeletGone }

// look follows the kubelet's silence. notReady is true while the kubelet itself has
// written that it is not Ready.
func (s *silence) look(w *view, notReady, holds bool) {
	k := w.f.Evidence.Kubelet
	if k.silent() {
		s.back = time.Time{}
		if s.first.IsZero() {
			s.first = k.At
		}
		if _, by := s.window(k); !w.now.Before(by) {
			s.unknown = true
		}
		return
	}
	s.first = time.Time{}
	if s.unknown && s.back.IsZero() {
		s.back = w.now
	}
	written := notReady || holds && !w.now.Before(s.readyBy(w))
	if written {
		s.unknown = false
	}
}

// window bounds the moment at which the node controller sets Unknown.
func (s *silence) window(k *Kubelet) (from, by time.Time) {
	from = k.AnsweredAt.Add(nodeMonitorGrace - jittered(leasePeriod) - writerSlack)
	return from, s.first.Add(nodeMonitorGrace + nodeMonitorPeriod + writerSlack)
}

// readyBy is when a kubelet that is back has written the condition.
func (s *silence) readyBy(w *view) time.Time {
	return s.back.Add(jittered(w.f.Config.nodeStatusPeriod()) + writerSlack)
}

// apply changes what the kubelet alone would show by what the node controller does.
func (s *silence) apply(w *view, holds bool, out *NodeStatus) {
	switch {
	case s.unknown:
		*out = NodeStatus{NotReady: true, Unknown: true, Message: msgSilent}
		if back := s.first.IsZero(); back && holds {
			out.ReadyFrom, out.ReadyBy = w.now, s.readyBy(w)
		}
	case !s.long(w): // it answers, or restarts
	case out.NotReady: // False, and then Unknown
		out.ReadyFrom, out.ReadyBy = time.Time{}, time.Time{}
	default:
		from, by := s.window(w.f.Evidence.Kubelet)
		*out = NodeStatus{NotReadyFrom: laterOf(from, w.now), NotReadyBy: by, Unknown: true}
	}
}
