package health

import "time"

// predict sets what the API shows and will show, and when.
func (v *Verdict) predict(w *view, k kubelet) {
	if v.State == StateUnknown {
		v.NodeReady = w.previous == nil || w.previous.NodeReady // as it was last known
		return
	}
	fails, points := w.rulesFailAt()
	if !k.nodeReady && v.State != StateStarting {
		fails, points = w.now, true
	}
	if points && v.State != StateHealthy {
		v.RulesFailIn = w.until(fails)
	}
	ns := w.f.NodeStatus
	if ns == nil || v.State == StateStarting {
		// Nothing is known of the node status update but its period.
		v.NodeReady, v.KubeletMessage = k.nodeReady, k.message
		if v.RulesFailIn != nil {
			v.NotReadyIn, v.NotReadyInLatest = w.until(fails), w.until(fails)
			if k.nodeReady || v.State == StateStarting {
				v.NotReadyInLatest = w.until(fails.Add(jittered(w.f.Config.nodeStatusPeriod())))
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
		if ns.Unknown {
			v.KubeletMessage = msgSilent
			break
		}
		from := laterOf(ns.NotReadyFrom, fails)
		t := from.Add(ns.NotReadyBy.Sub(from) / 2)
		v.KubeletMessage = rules(w.factsAt(t), t).message
	}
	if !k.nodeReady && !ns.Unknown && !w.versionHang().hanging {
		v.KubeletMessage = k.message // each update writes it again, with its new times
	}
	if !ns.ReadyFrom.IsZero() {
		v.ReadyIn, v.ReadyInLatest = w.until(ns.ReadyFrom), w.until(ns.ReadyBy)
	}
}

// until is the time from now to t, at least 0.
func (w *view) until(t time.Time) *time.Duration {
	d := max(t.Sub(w.now), 0)
	return &d
}

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
