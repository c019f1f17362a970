package health

import "time"

// NodeWriter says what the kubelet's node status update has written into the Ready
// condition, and between which moments it writes next, by bounds alone. One update
// runs at a time; the next begins a period, plus up to 4 %, after the last ended; it
// waits for Version first, as long as that hangs and the RPC timeout at most. So:
//
//   - while Version is answered, rules that change at t are written from t on, a
//     period later at the latest;
//   - while it hangs since h, updates end from h + timeout on, a period later at the
//     latest, and again every timeout and period after that. The first of them that
//     ends after the rules have changed writes it;
//   - a hang that ends at r ends the update in flight: it writes at r, and the next
//     one a period later.
//
// A NodeWriter belongs to one goroutine. Between two calls it keeps only times: since
// when the rules fail or hold, since when Version hangs, when a hang ended, and when
// the kubelet started.
type NodeWriter struct {
	fail, hold time.Time // since when the rules fail, or hold again
	hang       hang
	released   time.Time // end of the last hang
	opened     bool      // NotReady may have been written since the rules last held for certain
	first      bounds    // of the first update of a kubelet that has restarted
	started    time.Time // of that kubelet, until its first update
	delayed    bool      // that update waits for calls that hang
	notReady   bool
	message    string
	rewritten  time.Time // by when the next update has written another message
	silence    silence
}

type bounds struct{ from, by time.Time }

// plus moves both ends.
func (b bounds) plus(from, by time.Duration) bounds { return bounds{b.from.Add(from), b.by.Add(by)} }

// Restart begins again with a kubelet that started at t. What the API shows stays.
func (s *NodeWriter) Restart(t time.Time) {
	s.started, s.delayed, s.hang, s.released = t, false, hang{}, t
}

// At returns the condition written and the next writes. Calls come in order of now.
func (s *NodeWriter) At(f *Facts, now time.Time, previous *Verdict) NodeStatus {
	w := newView(f, now, previous)
	h, k := w.versionHang(), rules(f, now)
	switch {
	case h.hanging && s.hang.hanging:
		h = s.hang // later answers do not show when it began
	case h.hanging && f.Version.Ended.IsZero():
		h = w.sinceUnknown(h)
	case s.hang.hanging:
		s.released = laterOf(f.Version.Ended, s.hang.from)
		s.opened = s.opened || !s.fail.IsZero()
	}
	s.hang = h
	s.startUp(w)
	out := NodeStatus{}
	if fails, points := w.unknown(); points {
		// What the kubelet saw before plegd began counts, and nobody knows it.
		b := bounds{s.next(w, fails.from).from, s.next(w, fails.by).by}
		if now.Before(b.by) {
			s.opened = s.opened || !now.Before(b.from)
			return NodeStatus{NotReadyFrom: laterOf(b.from, now), NotReadyBy: b.by}
		}
	}
	if starting(w) || w.blind() {
		*s = NodeWriter{silence: s.silence, hang: s.hang, opened: s.opened}
		return NodeStatus{}
	}
	s.turn(w, k.nodeReady)
	fails, points := s.fail, true
	if k.nodeReady {
		fails, points = w.rulesFailAt()
	}
	recovering := k.nodeReady && (s.notReady || s.open(w))
	switch {
	case points && !s.notReady:
		b := s.next(w, fails)
		known := h.hanging || !f.Version.Ended.IsZero() // whether updates wait for Version
		certain := known && !now.Before(b.by)
		if s.notReady = !k.nodeReady && certain && !s.silence.gone(w); !s.notReady {
			out.NotReadyFrom, out.NotReadyBy = laterOf(b.from, now), laterOf(b.by, now)
			s.opened = s.opened || !k.nodeReady && !now.Before(b.from)
		}
	case !points && recovering:
		b := s.next(w, s.hold)
		if s.notReady = s.notReady && now.Before(b.by); now.Before(b.by) {
			out.ReadyFrom, out.ReadyBy = laterOf(b.from, now), b.by
		}
	}
	s.write(w, k)
	if out.NotReady = s.notReady; s.notReady {
		out.Message = s.message
	}
	s.silence.look(w, s.notReady, k.nodeReady)
	s.silence.apply(w, k.nodeReady, &out)
	return out
}

// write notes the message of the condition: while Version hangs, no update writes
// another one before the next of them ends.
func (s *NodeWriter) write(w *view, k kubelet) {
	switch {
	case !s.notReady:
		s.message = ""
	case k.nodeReady:
	case s.message == "", !s.hang.hanging, !w.now.Before(s.rewritten):
		s.message, s.rewritten = k.message, s.next(w, w.now).by
	}
}

// turn notes when the rules begin to fail, and to hold again.
func (s *NodeWriter) turn(w *view, holds bool) {
	switch {
	case !holds && s.fail.IsZero():
		if s.notReady && !w.now.Before(s.next(w, s.hold).from) {
			s.notReady, s.opened = false, true // an update may have written Ready meanwhile
		}
		s.fail, s.hold = failingSince(w.f, w.now), time.Time{}
	case holds && s.hold.IsZero():
		if s.hold = w.now; !s.fail.IsZero() && w.now.Sub(s.released) < releaseSettle {
			s.opened = true // the kubelet's own Status ends at the same moment
		}
		s.fail = time.Time{}
	}
}

// open reports whether an update may have found the rules failing, and the next one
// since they hold has not come for certain.
func (s *NodeWriter) open(w *view) bool {
	s.opened = s.opened && (s.hang.hanging || w.age(laterOf(s.hold,
		s.released)) < jittered(w.f.Config.nodeStatusPeriod())+writerSlack)
	return s.opened
}

// next bounds the end of the first update at t or later.
func (s *NodeWriter) next(w *view, t time.Time) bounds {
	period, timeout := w.f.Config.nodeStatusPeriod(), w.f.Config.RPCTimeout
	longest := jittered(period)
	if b := s.first; !b.by.IsZero() && !t.After(b.by) {
		return bounds{laterOf(b.from, t), b.by.Add(writerSlack)}
	}
	if !s.hang.hanging {
		t = laterOf(t, s.released)
		return bounds{t, t.Add(longest)}.plus(-writerSlack, writerSlack)
	}
	b := bounds{s.hang.from, s.hang.by.Add(longest)}.plus(timeout, timeout)
	if t.Add(longest).Before(s.hang.from) {
		return bounds{t, t.Add(longest)}.plus(-writerSlack, writerSlack) // before the hang
	}
	again := func(b bounds) bounds { return b.plus(period+timeout, longest+timeout) }
	for b.by.Before(t) {
		b = again(b)
	}
	if b.from.Before(t) { // some of these end before t: their next ones count
		b = bounds{t, laterOf(b.by, t.Add(longest+timeout))}
	}
	if t.Before(s.hang.from) {
		b.from = t
	}
	return b.plus(-hangSlack, hangSlack)
}

// sinceUnknown widens a hang that is older than plegd: an update of the kubelet's may
// end from plegd's start on, or from what the state of a plegd before says.
func (w *view) sinceUnknown(h hang) hang {
	h.from = w.f.Started.Add(-w.f.Config.RPCTimeout)
	for _, known := range []time.Time{w.f.Status.LastGood, w.f.Relist.LastSeen} {
		if known.After(h.from) && known.Before(h.by) {
			h.from = known
		}
	}
	return h
}

// startUp bounds the first update of a kubelet that has just started: it begins after
// the kubelet's first Status and its first lists.
func (s *NodeWriter) startUp(w *view) {
	if s.started.IsZero() {
		if !s.first.by.IsZero() && w.now.After(s.first.by.Add(writerSlack)) {
			s.first = bounds{}
		}
		return
	}
	from, by, hanging := w.startupCalls(s.started)
	switch {
	case hanging:
		s.first, s.delayed = bounds{from, by}, true
	default:
		s.first = bounds{w.now, w.now.Add(startupTakes)}
		s.started = time.Time{}
	}
}

// unknown bounds the moment at which the rules fail of a kubelet that ran before plegd
// did, where plegd has seen no list or no Status answered since it began and the next
// one is known to be late: from now, or from the stored state of a previous plegd,
// until the moment that results if all was well up to plegd's start.
func (w *view) unknown() (fails bounds, ok bool) {
	f := w.f
	if f.KubeletStarted.After(f.Started) {
		return fails, false
	}
	consider := func(b bounds) {
		b.from = laterOf(b.from, f.Started)
		if !ok || b.from.Before(fails.from) {
			fails.from = b.from
		}
		if !ok || b.by.Before(fails.by) {
			fails.by = b.by
		}
		ok = true
	}
	r := &f.Relist
	if seen := r.LastSeen; !seen.After(f.Started) && (r.Failures > 0 || !w.hungSince.IsZero()) {
		if !seen.IsZero() {
			seen = seen.Add(f.Config.RelistThreshold)
		}
		consider(bounds{seen, f.Started.Add(f.Config.RelistThreshold)})
	}
	if good := f.Status.LastGood; !good.After(f.Started) && (f.Status.LastErr != nil || w.statusHangs()) {
		from := good
		if !good.IsZero() { // the kubelet asks at other moments
			from = good.Add(RuntimeDownAfter - StatusPeriod)
		}
		consider(bounds{from, f.Started.Add(RuntimeDownAfter)})
	}
	return fails, ok
}
