package kubelet

import (
	"cmp"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

func (s *step) holds() bool { return s.rules.NodeReady }
func (s *step) fails() bool { return !s.rules.NodeReady }

// points reports whether a rule fails, or will.
func (s *step) points() bool        { return !s.failure.never() }
func (s *step) pointsNowhere() bool { return s.failure.never() }

// failureWindow bounds when the rules fail, or failed.
func (s *step) failureWindow() window {
	fails := s.model.turned
	if s.holds() {
		fails = s.rulesFailAt()
	}
	flaky := facts.Plus(s.model.flaky.start(s.t), RuntimeDownAfter)
	refused := facts.Plus(s.refusedAlone(), RuntimeDownAfter-StatusPeriod-metricsAge)
	last := fails
	if !fails.IsZero() && fails.Equal(s.relistFailsAt()) {
		limit := s.f.Config.RelistThreshold
		seen := fails.Add(-limit)
		relisted := s.kubeletRelisted(seen)
		fails = relisted.earliest.Add(limit)
		if early := s.f.Config.EarliestThreshold; early > 0 {
			fails = facts.Earliest(fails, seen.Add(early))
		}
		last = relisted.latest.Add(limit)
	}
	first := facts.Earliest(fails, s.estimated.earliest, flaky, refused)
	last = facts.Earliest(last, s.estimated.latest)
	return window{earliest: first, latest: cmp.Or(last, first)}
}

// refusedAlone returns since when the kubelet's metrics show that its Status calls fail, where plegd's own have been
// answered since: a failure that both see is dated more exactly by plegd's last answer.
func (s *step) refusedAlone() time.Time {
	since := StatusFailsSince(s.f)
	answered := s.f.Status.LastGood
	if !answered.IsZero() && since.After(answered) {
		return time.Time{}
	}
	return since
}

// unobserved reports whether no call has been answered since plegd started, or only plegd cannot reach the runtime.
func (s *step) unobserved() bool {
	if s.Blind {
		return true
	}
	if s.model.resumed {
		return false
	}
	update := s.unobservedUpdate()
	return s.starting() || s.t.Before(update.latest)
}

// unobservedUpdate bounds the first update that finds failing rules of a kubelet that ran before plegd did.
func (s *step) unobservedUpdate() window {
	fails := s.failedBeforePlegd()
	if fails.never() {
		return window{}
	}
	return s.model.updates.finding(fails)
}

// failedBeforePlegd bounds the moment at which the rules fail of a kubelet that ran before plegd did, where no list or
// no Status has been answered since and the next one is late: from now, or from the restored state, until the moment
// that results if all was well up to plegd's start.
func (m *moment) failedBeforePlegd() window {
	f := m.f
	var fails window
	if f.KubeletStarted.After(f.Started) {
		return fails
	}
	// good is the last known success or zero, early how much sooner the kubelet's clock may run out.
	consider := func(good time.Time, limit, early time.Duration) {
		first := facts.Later(facts.Plus(good, limit-early), f.Started)
		fails.earliest = facts.Earliest(fails.earliest, first)
		fails.latest = facts.Earliest(fails.latest, f.Started.Add(limit))
	}
	listed := f.Relist.LastSeen
	if !listed.After(f.Started) && (f.Relist.Failures > 0 || !m.HungSince.IsZero()) {
		consider(listed, f.Config.RelistThreshold, f.Config.KubeletRelistPeriod)
	}
	good := f.Status.LastGood
	if !good.After(f.Started) && m.StatusFails {
		consider(good, RuntimeDownAfter, StatusPeriod)
	}
	return fails
}

func (s *step) observed() bool           { return !s.unobserved() }
func (s *step) observedFailing() bool    { return s.observed() && s.points() }
func (s *step) observedAfterDoubt() bool { return s.observed() && s.model.doubt }

// silent reports whether the kubelet gives no answer, or cannot reach its API server: it renews no lease.
func (s *step) silent() bool  { return !s.model.silence.IsZero() }
func (s *step) answers() bool { return s.model.silence.IsZero() }

// lost reports whether it is silent for longer than a restart takes.
func (s *step) lost() bool { return s.unanswered(s.model.silence, GoneAfter) }

// mute reports whether a silent kubelet certainly writes nothing; a slow one may write.
func (s *step) mute() bool {
	return s.lost() || s.silent() && s.f.Evidence.Kubelet != nil && s.f.Evidence.Kubelet.Refused
}

// disconnected reports whether it is lost, and has no new connection either.
func (s *step) disconnected() bool { return s.lost() && !s.APIUnproven }

// graceOver reports whether the node controller has written Unknown.
func (s *step) graceOver() bool         { return s.silent() && !s.t.Before(s.grace.latest) }
func (s *step) answersAfterDoubt() bool { return s.answers() && s.model.doubt }

// mayHaveReturned reports whether a kubelet that was silent answers, or may, and an update of it may have ended since.
func (s *step) mayHaveReturned() bool {
	mayAnswer := s.answers() || s.APIUnproven
	return mayAnswer && !s.t.Before(s.readyWindow().earliest)
}

// mayBeReady reports whether an update may have found the rules holding.
func (s *step) mayBeReady() bool {
	return s.holds() && !s.lost() && !s.t.Before(s.readyWindow().earliest)
}

// holdsAfterDoubt reports whether nothing points to a failure, and an update may have found one before.
func (s *step) holdsAfterDoubt() bool {
	return s.pointsNowhere() && (s.model.doubt || s.undecided())
}

// writtenNotReady reports whether an update has certainly found the rules failing. Without an answer of Version it is
// not known whether updates wait for it.
func (s *step) writtenNotReady() bool {
	known := s.model.updates.hangs() || !s.f.Version.Ended.IsZero()
	return s.fails() && known && !s.mute() && !s.t.Before(s.certainBy()) && s.updatedSince(s.model.back)
}

// certainBy is when an update has certainly found the rules failing. The kubelet may have called Status a period after
// plegd, which the window leaves out.
func (s *step) certainBy() time.Time {
	if s.rules.PLEGHealthy && !s.model.updates.hangs() {
		return s.update.latest.Add(StatusPeriod)
	}
	return s.update.latest
}

// updatedSince reports whether an update has certainly ended since t; true for never.
func (s *step) updatedSince(t time.Time) bool {
	return t.IsZero() || s.age(t) >= s.model.updates.longest+writerSlack
}

// readyWindow bounds the first update that finds the rules holding. The kubelet may call Status a period after plegd,
// and the first update of one that has just started may be too early.
func (s *step) readyWindow() window {
	returned := facts.Later(s.model.back, s.wokeLate())
	holding := facts.Later(s.model.turned, s.model.fell)
	earliest := facts.Later(holding, returned)
	started := facts.Plus(s.model.updates.first.latest, writerSlack)
	latest := facts.Later(facts.Plus(holding, StatusPeriod), facts.Later(returned, facts.Later(s.relistDue(), started)))
	latest = facts.Later(latest, s.model.cached)
	return window{earliest: s.model.updates.next(earliest).earliest, latest: s.model.updates.next(latest).latest}
}

// settledReady reports whether an update has certainly found the rules holding.
func (s *step) settledReady() bool {
	return !s.model.updates.hangs() && !s.t.Before(s.readyWindow().latest)
}

// undecided reports whether the rules hold again since a hang ended at the same moment, or a pause has just ended that
// was long enough for the node controller: an update may have written another condition.
func (s *step) undecided() bool {
	if !s.wokeLate().IsZero() && !s.updatedSince(s.wokeLate()) {
		return true
	}
	released := s.model.updates.released
	if s.model.turned.Sub(s.model.turnedBefore) > startupTakes { // a kubelet that has just started may have waited for that
		released = facts.Later(released, s.model.updates.first.earliest)
	}
	if s.fails() || s.model.turnedBefore.IsZero() || released.IsZero() || s.model.updates.hangs() {
		return false
	}
	return s.model.turned.Sub(released).Abs() < releaseSettle && s.t.Before(s.readyWindow().latest)
}

// wokeLate returns the end of a pause in which the node controller may have written Unknown, zero for none.
func (s *step) wokeLate() time.Time { return WokeLate(s.f) }

// mayBeWritten reports whether another condition than the last certain one may be in the API.
func (s *step) mayBeWritten() bool {
	switch s.model.state {
	case Ready:
		return false
	case Falling: // the kubelet may have called Status a period before plegd
		failed := s.failure.plus(-StatusPeriod, 0)
		return s.t.After(failed.earliest) && !s.t.Before(s.model.updates.finding(failed).earliest)
	case Unobserved:
		update := s.unobservedUpdate()
		return !update.never() && !s.t.Before(update.earliest)
	case Silent:
		return !s.t.Before(s.grace.earliest)
	case NotReady, Unsettled, Unknown:
		return true
	}
	return false
}

// status returns what the API shows in the state, and by when that changes.
func (s *step) status() facts.NodeStatus {
	out := facts.NodeStatus{State: s.model.state.public()}
	switch s.model.state {
	case Ready:
	case Unobserved:
		s.turnsFalse(&out, s.unobservedWindow())
	case Falling:
		change := s.update
		if !s.t.Before(change.latest) {
			change.latest = s.certainBy()
		}
		s.turnsFalse(&out, change)
	case Silent:
		s.turnsFalse(&out, s.grace)
		out.Unknown = true
	case NotReady:
		out.NotReady = true
		out.Message = s.model.written.text
	case Unknown:
		out.NotReady = true
		out.Unknown = true
		out.Message = silentMessage
	case Unsettled:
		s.turnsFalse(&out, s.update)
	}
	returns := s.model.state == Unsettled || out.NotReady && s.holds() && s.answers()
	if returns {
		s.turnsTrue(&out, s.readyWindow())
	}
	return out
}

// unobservedWindow bounds the first update that finds the rules failing, before anything has been answered.
func (s *step) unobservedWindow() window {
	if s.Blind {
		return window{}
	}
	if update := s.unobservedUpdate(); !update.never() {
		return update
	}
	fails := s.rulesFailAt()
	if fails.IsZero() {
		return window{}
	}
	return s.model.updates.finding(exactly(fails))
}

// turnsFalse sets the window of a change for the worse. One whose end has passed without a proof stays open: the next
// update may bring it.
func (s *step) turnsFalse(out *facts.NodeStatus, change window) {
	if change.never() {
		return
	}
	if !s.t.Before(change.latest) {
		change = s.model.updates.whileAnswered(s.t)
	}
	out.NotReadyFrom = facts.Later(change.earliest, s.t)
	out.NotReadyBy = change.latest
}

// turnsTrue sets the window of a change for the better.
func (s *step) turnsTrue(out *facts.NodeStatus, change window) {
	if s.t.Before(change.latest) {
		out.ReadyFrom = facts.Later(change.earliest, s.t)
		out.ReadyBy = change.latest
	}
}
