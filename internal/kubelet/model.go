package kubelet

import (
	"cmp"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// releaseSettle is how long the result of an update that hung is open after its end: the kubelet's Status call ends at
// the same moment, and which of the two is first decides whether the update finds the runtime down.
const releaseSettle = time.Second

// Model follows the Ready condition that the node's kubelet and the node controller write. The zero Model has seen
// nothing. It belongs to one goroutine.
type Model struct {
	state   State
	doubt   bool // another condition may have been written since the last certain one
	written message
	updates updates
	relists relists
	missed  window // bounds the last relist, before lists hung, of a kubelet that relies on events
	flaky   flakiness

	holding      bool      // the rules hold
	turned       time.Time // since when they do or do not, zero while nothing is observed
	fell         time.Time // when a rule was last about to fail: the kubelet's may have failed
	turnedBefore time.Time // the begin of the phase before that, zero for none
	resumed      bool      // restored within a fault that has not ended
	started      time.Time // start of a kubelet that has restarted, until its first update is bounded
	silence      time.Time // the first look at a silent kubelet, zero while it answers
	back         time.Time // since when it answers again
	lost         time.Time // since when it cannot reach its API server, zero while it can
	cached       time.Time // until when its cache of its Node may be that of such a loss
}

// message is that of the condition as last written.
type message struct {
	text      string
	rewritten time.Time // by when the next update has written another one
}

// step is a moment with what the transitions read of the model.
type step struct {
	*moment

	model *Model
	// estimated bounds when the rules fail by the estimate of the kubelet's relists; an end is zero where it is open.
	estimated window
	// failure bounds when the rules fail, or failed; never while nothing points that way.
	failure window
	// update bounds the first update that finds them failing.
	update window
	// grace bounds when the node controller writes Unknown; never while the kubelet answers.
	grace window
}

// Restart begins again with a kubelet that started at t. What the API shows stays.
func (m *Model) Restart(t time.Time) {
	m.started = t
	m.updates.hang = window{}
	m.updates.released = t
	m.relists = relists{}
	m.missed = window{}
	m.cached = time.Time{}
}

// Observe returns the condition that the API shows and its next change, and the start of the kubelet's last relist by an
// estimate, zero where it is as plegd's. Calls come in order of t.
func (m *Model) Observe(f *facts.Facts, t time.Time, seen Observations) (facts.NodeStatus, time.Time) {
	m.relists.follow(f)
	estimated := *f
	start, fails := m.relists.estimate(f)
	current := &moment{Observations: seen, f: f, t: t} // no rule is asked
	m.followMissed(current)
	if missed := current.missedRelist(m.missed); !missed.IsZero() {
		start = missed
		fails = window{earliest: missed.Add(f.Config.RelistThreshold)}
	}
	estimated.Modelled.Estimated = start
	s := &step{moment: newMoment(&estimated, t, seen), model: m, estimated: fails}
	m.follow(s)
	m.advance(s)
	m.doubt = m.doubt || s.mayBeWritten()
	m.written = m.nextMessage(s)
	return s.status(), start
}

// follow notes what this step observes, in the order in which each part needs the ones before it.
func (m *Model) follow(s *step) {
	m.flaky.follow(s.f.Calls[opStatus].LastFailed, s.f.Status.LastGood)
	m.followUpdates(s.moment)
	m.followStart(s.moment)
	m.followRules(s)
	if m.state == Falling {
		m.fell = s.t
	}
	m.followKubelet(s)
	s.failure = s.failureWindow()
	if !s.failure.never() {
		s.update = m.updates.finding(s.failure)
	}
}

// followUpdates notes when Version began to hang and when that ended. Later answers only narrow the bounds.
func (m *Model) followUpdates(current *moment) {
	u := &m.updates
	u.shortest, u.longest = current.f.Config.StatusPeriod()
	u.timeout = current.f.Config.RPCTimeout
	hang := current.versionHang()
	switch {
	case !hang.never():
		u.hang = window{
			earliest: facts.Later(u.hang.earliest, hang.earliest), latest: facts.Earliest(u.hang.latest, hang.latest),
		}
	case u.hangs() && !current.f.Version.Ended.IsZero():
		u.hang = window{}
		u.released = current.f.Version.Ended
	}
}

// followStart bounds the first update of a kubelet that has just started: it begins after the kubelet's first Status
// and lists. Up to three loops wait for a Status that hangs in turn. That it has started is over once Status has been
// answered for longer than a start takes.
func (m *Model) followStart(current *moment) {
	limit := current.f.Config.RPCTimeout
	status := &current.f.Status
	answered := status.LastGood.After(m.started) // the hang may have begun after the kubelet's first calls
	switch {
	case m.started.IsZero():
		if current.t.After(m.updates.first.latest.Add(writerSlack)) {
			m.updates.first = window{}
		}
	case status.LastErr.TimedOut() || current.unanswered(status.InFlightSince, StatusHangAfter):
		m.updates.first = m.firstUpdate(answered, limit, startupLoops*limit+startupTakes)
	case !current.HungSince.IsZero():
		listed := current.f.Relist.LastSeen.After(m.started) // the call that hangs may be the second one
		m.updates.first = m.firstUpdate(listed, limit, limit+startupTakes)
	default:
		m.updates.first = exactly(current.t).plus(0, startupTakes)
		if status.LastGood.After(m.started.Add(startupTakes)) {
			m.started = time.Time{}
		}
	}
}

// firstUpdate bounds the first update of a kubelet whose first calls hang, or were answered.
func (m *Model) firstUpdate(answered bool, earliest, latest time.Duration) window {
	if answered {
		earliest = 0
	}
	return exactly(m.started).plus(earliest, latest)
}

// followRules notes when the rules begin to fail, and to hold again.
func (m *Model) followRules(s *step) {
	switch {
	case s.unobserved():
		m.turned = time.Time{}
		m.turnedBefore = time.Time{}
	case m.turned.IsZero() || m.holding != s.holds():
		m.turnedBefore = m.turned
		m.turned = s.turnedAt()
		m.holding = s.holds()
	}
}

// turnedAt returns since when the rules hold or fail: now, where it is not known by a time.
func (m *moment) turnedAt() time.Time {
	if m.rules.NodeReady {
		return m.t
	}
	return facts.Earliest(m.t, facts.Plus(lastSeen(m.f), m.f.Config.RelistThreshold),
		facts.Plus(lastGood(m.f), RuntimeDownAfter))
}

// followKubelet notes since when the kubelet is silent, and since when it answers again.
func (m *Model) followKubelet(s *step) {
	silent, answered := s.silentSince()
	mayAnswer := silent.IsZero() || s.APIUnproven
	if mayAnswer && !m.silence.IsZero() || s.APIUnproven && m.state == Unsettled {
		m.back = s.t
	}
	if mayAnswer && !m.lost.IsZero() { // the back-off doubles: it is no longer than twice the loss so far
		lost := s.t.Sub(facts.Later(m.lost, s.f.KubeletStarted))
		m.cached = s.t.Add(min(2*lost, cacheBackoff))
	}
	switch {
	case silent.IsZero():
		m.lost = time.Time{}
		m.silence = time.Time{}
	default:
		m.lost = s.APILost.First
		m.silence = cmp.Or(m.silence, silent)
		s.grace = graceWindow(answered, m.silence)
	}
}

// nextMessage returns the condition's message. While Version hangs, no update writes another one before the next ends.
func (m *Model) nextMessage(s *step) message {
	switch {
	case m.state != NotReady:
		return message{}
	case s.holds(), m.written.text != "" && m.updates.hangs() && s.t.Before(m.written.rewritten):
		return m.written
	}
	return message{text: s.rules.Message, rewritten: m.updates.next(s.t).latest}
}
