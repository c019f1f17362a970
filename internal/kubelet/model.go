package kubelet

import (
	"cmp"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// The node status update of the kubelet (pkg/kubelet/kubelet.go, Run: JitterUntil of syncNodeStatus, sliding), and the
// node controller (pkg/controller/nodelifecycle/ node_lifecycle_controller.go, tryUpdateNodeHealth): every
// nodeMonitorPeriod it looks for a renewed lease, and sets the Ready condition to Unknown nodeMonitorGrace after the
// last one. The node cannot see its settings: these are the defaults since 1.32.
const (

	// leasePeriod is the longest time between two renewals (nodeLeaseDurationSeconds, 40 s, by 4, plus 4 %).
	leasePeriod       = 10400 * time.Millisecond
	nodeMonitorPeriod = 5 * time.Second
	nodeMonitorGrace  = 50 * time.Second
	// writerSlack widens the predicted window on both sides: relists of plegd and
	// the kubelet begin up to a period apart, and a patch takes time to arrive.
	// hangSlack is the same where Version's timeout decides and not the rules.
	writerSlack = 800 * time.Millisecond
	hangSlack   = 300 * time.Millisecond
	// versionHangAfter is how long a Version call is unanswered until it counts as hanging.
	versionHangAfter = 900 * time.Millisecond
	// ListHangAfter is how long a list beside it is unanswered.
	ListHangAfter = 500 * time.Millisecond
	// releaseSettle is how long the result of an update that hung is left open after its end: the kubelet's Status
	// call ends at the same moment, and which of the two is first decides whether the update finds the runtime down.
	releaseSettle = time.Second
	// startupTakes is the most from a kubelet's start to its first update where all is answered (1.4 to 4.4 s).
	startupTakes = 6 * time.Second
)

// Model bounds the moments at which the Ready condition changes in the API. One
// status update of the kubelet runs at a time; the next begins a period, plus up to 4 %,
// after the last ended; it waits for Version first, for the RPC timeout at most. So:
//
//   - while Version is answered, a change of the rules is written within a period;
//   - while it hangs since h, updates end from h + timeout on, a period later at the
//     latest, and again every timeout and period after that;
//   - a hang that ends at r ends the update in flight: it writes at r.
//
// A Model belongs to one goroutine.
type Model struct {
	fail, hold time.Time // since when the rules fail, or hold again
	hang       bounds    // of the begin of Version's hang; zero while it is answered
	released   time.Time // end of the last hang
	opened     bool      // NotReady may have been written since the rules last held for certain
	first      bounds    // of the first update of a kubelet that has restarted
	started    time.Time // of that kubelet, until its first update
	notReady   bool      // what the kubelet has written for certain, and its message
	message    string
	rewritten  time.Time // by when the next update has written another message
	// silent is the first look at the kubelet that got no answer, zero while it answers.
	// unknown is true from when the node controller has certainly written Unknown until a
	// kubelet that answers again, since back, has written the condition.
	silent, back time.Time
	unknown      bool
	newer, older rounds // of kubelets since 1.36, and before
}

type bounds struct{ from, by time.Time }

// plus moves both ends.
func (b bounds) plus(from, by time.Duration) bounds { return bounds{b.from.Add(from), b.by.Add(by)} }

// Restart begins again with a kubelet that started at t. What the API shows stays.
func (s *Model) Restart(t time.Time) {
	s.started, s.hang, s.released, s.newer, s.older = t, bounds{}, t, rounds{}, rounds{}
}

// At returns the condition written and the next writes, and corrects f.Modelled. Calls come in order of now.
func (s *Model) At(f *facts.Facts, now time.Time, seen Observations) facts.NodeStatus {
	s.followRounds(f, now)
	m := newMoment(f, now, seen)
	s.followVersion(m)
	s.startUp(m)
	if fails, points := m.unknown(); points {
		// What the kubelet saw before plegd began counts, and is not known.
		if b := s.firstFailing(m, fails); now.Before(b.by) {
			s.opened = s.opened || !now.Before(b.from)
			return facts.NodeStatus{NotReadyFrom: facts.Later(b.from, now), NotReadyBy: b.by}
		}
	}
	if m.starting() || m.Blind {
		*s = Model{silent: s.silent, back: s.back, unknown: s.unknown, hang: s.hang, opened: s.opened,
			newer: s.newer, older: s.older}
		return facts.NodeStatus{}
	}
	s.turn(m)
	out := s.kubeletWrites(m)
	s.controllerWrites(m, &out)
	return out
}

// kubeletWrites returns what the kubelet has written, and when it writes next.
func (s *Model) kubeletWrites(m *moment) (out facts.NodeStatus) {
	holds, fails := m.rules.NodeReady, s.fail
	if holds {
		fails = m.rulesFailAt()
	}
	// Where the kubelet's version is not known it may be one before 1.36.
	from := facts.Earliest(fails, facts.Plus(m.f.Modelled.LastSeenBefore136, m.f.Config.RelistThreshold))
	points := !from.IsZero()
	if holds && (s.notReady || !points && s.open(m)) {
		b := s.next(m, s.hold)
		s.notReady = s.notReady && m.t.Before(b.by)
		if m.t.Before(b.by) {
			out.ReadyFrom, out.ReadyBy = facts.Later(b.from, m.t), b.by
		}
	}
	if points && !s.notReady {
		b := s.firstFailing(m, bounds{from, cmp.Or(fails, from)})
		// Without an answer of Version it is not known whether updates wait for it.
		certain := (s.hangs() || !m.f.Version.Ended.IsZero()) && !m.t.Before(b.by)
		if s.notReady = !holds && certain && !s.gone(m); !s.notReady {
			out.NotReadyFrom, out.NotReadyBy = facts.Later(b.from, m.t), facts.Later(b.by, m.t)
			s.opened = s.opened || m.t.After(from) && !m.t.Before(b.from)
		}
	}
	switch { // while Version hangs, no update writes another message before the next one ends
	case !s.notReady:
		s.message = ""
	case !holds && (s.message == "" || !s.hangs() || !m.t.Before(s.rewritten)):
		s.message, s.rewritten = m.rules.Message, s.next(m, m.t).by
	}
	out.NotReady, out.Message = s.notReady, s.message
	return out
}

func (s *Model) hangs() bool { return !s.hang.by.IsZero() }

// followVersion notes when Version began to hang and when that ended. Later answers narrow the bounds only.
func (s *Model) followVersion(m *moment) {
	if h := m.versionHang(); h != (bounds{}) {
		s.hang = bounds{facts.Later(s.hang.from, h.from), facts.Earliest(s.hang.by, h.by)}
	} else if s.hangs() {
		s.hang, s.released = h, m.f.Version.Ended
		// The kubelet's own Status ends at the same moment, before or after this.
		s.opened = s.opened || m.age(s.hold) < releaseSettle
	}
}

// versionHang bounds the begin of the hang of Version, with a list that hangs for the same reason; or zero.
func (m *moment) versionHang() bounds {
	v := m.f.Version
	if !m.unanswered(v.HangsSince, versionHangAfter) {
		return bounds{}
	}
	h := bounds{v.Ended, v.HangsSince}
	if in := m.Unanswered; in != nil {
		start, last := in.PhaseStart, m.f.Calls[string(in.Phase)].LastOK
		if start.After(m.LastAnswer) {
			last = m.LastAnswer
		}
		if last.Before(h.by) && h.from.Before(start) {
			h = bounds{facts.Later(h.from, last), facts.Earliest(h.by, start)}
		}
	}
	if v.Ended.IsZero() { // it is older than plegd, or than what the restored state says
		good := m.f.Status.LastGood
		h = bounds{m.f.Started.Add(-m.f.Config.RPCTimeout), facts.Earliest(h.by, facts.Plus(good, StatusPeriod))}
		for _, known := range []time.Time{good, m.f.Relist.LastSeen} {
			if known.After(h.from) && known.Before(h.by) {
				h.from = known
			}
		}
	}
	h.from = facts.Earliest(h.from, h.by)
	return h
}

// turn notes when the rules begin to fail, and to hold again.
func (s *Model) turn(m *moment) {
	switch holds := m.rules.NodeReady; {
	case !holds && s.fail.IsZero():
		if s.notReady && !m.t.Before(s.next(m, s.hold).from) {
			s.notReady, s.opened = false, true // an update may have written Ready meanwhile
		}
		// Now, where it is not known by a time.
		s.fail, s.hold = facts.Earliest(m.t, facts.Plus(facts.LastSeen(m.f), m.f.Config.RelistThreshold),
			facts.Plus(m.f.Status.LastGood, RuntimeDownAfter)), time.Time{}
	case holds && s.hold.IsZero():
		if s.hold = m.t; !s.fail.IsZero() && m.age(s.released) < releaseSettle {
			s.opened = true // the kubelet's own Status ends at the same moment
		}
		s.fail = time.Time{}
	}
}

// open reports whether an update may have found the rules failing, and none has certainly come since.
func (s *Model) open(m *moment) bool {
	_, period := m.f.Config.StatusPeriod()
	s.opened = s.opened && (s.hangs() || m.age(facts.Later(s.hold, s.released)) < period+writerSlack)
	return s.opened
}

// next bounds the end of the first update at t or later.
func (s *Model) next(m *moment, t time.Time) bounds {
	shortest, longest := m.f.Config.StatusPeriod()
	timeout := m.f.Config.RPCTimeout
	if b := s.first; !b.by.IsZero() && !t.After(b.by) {
		return bounds{facts.Later(b.from, t), b.by.Add(writerSlack)}
	}
	if !s.hangs() {
		t = facts.Later(t, s.released)
	}
	if !s.hangs() || t.Add(longest).Before(s.hang.from) {
		return bounds{t, t.Add(longest)}.plus(-writerSlack, writerSlack)
	}
	b := bounds{s.hang.from, s.hang.by.Add(longest)}.plus(timeout, timeout)
	for b.by.Before(t) {
		b = b.plus(shortest+timeout, longest+timeout)
	}
	if b.from.Before(t) { // some of these end before t: their next ones count
		b = bounds{t, facts.Later(b.by, t.Add(longest+timeout))}
	}
	if t.Before(s.hang.from) {
		b.from = t
	}
	return b.plus(-hangSlack, hangSlack)
}

// firstFailing bounds the end of the first update that finds the rules failing.
func (s *Model) firstFailing(m *moment, fails bounds) bounds {
	return bounds{s.next(m, fails.from).from, s.next(m, fails.by).by}
}

// startUp bounds the first update of a kubelet that has just started: it begins after the
// kubelet's first Status and lists. Up to three loops wait for a Status that hangs in turn.
func (s *Model) startUp(m *moment) {
	limit, status := m.f.Config.RPCTimeout, &m.f.Status
	switch {
	case s.started.IsZero():
		if m.t.After(s.first.by.Add(writerSlack)) {
			s.first = bounds{}
		}
	case status.LastErr.TimedOut() || m.unanswered(status.InFlightSince, StatusHangAfter):
		s.first = bounds{s.started, s.started}.plus(limit, 3*limit+startupTakes)
	case !m.HungSince.IsZero():
		s.first = bounds{s.started, s.started}.plus(limit, limit+startupTakes)
	default:
		s.first, s.started = bounds{m.t, m.t.Add(startupTakes)}, time.Time{}
	}
}

// unknown bounds the moment at which the rules fail of a kubelet that ran before plegd did,
// where no list or no Status has been answered since and the next one is late: from now, or
// from the restored state, until the moment that results if all was well up to plegd's start.
func (m *moment) unknown() (fails bounds, ok bool) {
	f := m.f
	if f.KubeletStarted.After(f.Started) {
		return fails, false
	}
	// good is the last known success or zero, early how much sooner the kubelet's clock may run out.
	consider := func(good time.Time, limit, early time.Duration) {
		from := facts.Later(facts.Plus(good, limit-early), f.Started)
		fails, ok = bounds{facts.Earliest(fails.from, from), facts.Earliest(fails.by, f.Started.Add(limit))}, true
	}
	if seen := f.Relist.LastSeen; !seen.After(f.Started) && (f.Relist.Failures > 0 || !m.HungSince.IsZero()) {
		consider(seen, f.Config.RelistThreshold, 0)
	}
	if good := f.Status.LastGood; !good.After(f.Started) && m.StatusFails {
		consider(good, RuntimeDownAfter, StatusPeriod)
	}
	return fails, ok
}
