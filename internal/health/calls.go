package health

import (
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/kubelet"
	"github.com/plegd/plegd/internal/wchan"
)

// The operations that reasons speak of, as the kubelet's metrics name them.
const (
	opVersion = "version"
	opStatus  = "status"
)

// listState is how the lists of the relist in flight and of the last one are answered.
type listState string

const (
	listsOK   listState = "ok"
	listsSlow listState = "slow"
	listsHang listState = "hang"
	listsFail listState = "fail"
)

// statusState is how Status is answered.
type statusState string

const (
	statusOK statusState = "ok"
	// statusFails fails or hangs as other calls may, statusAlone does so while other calls are answered.
	statusFails statusState = "fails"
	statusAlone statusState = "fails alone"
)

// fillCalls fills in how lists are answered.
func (s *signals) fillCalls() {
	r := &s.f.Relist
	s.lists = listsOK
	s.status = statusOK
	s.listLate = s.listInFlightFor(slowCall)
	if r.Failures > 0 && r.Last != nil {
		s.relistErr = r.Last.Err
	}
	if s.relistErr != nil && s.relistErr.TooLarge() {
		s.tooLarge = s.relistErr
	}
	hanging := s.listUnanswered(facts.HangAfter)
	switch {
	case hanging != nil:
		s.lists = listsHang
		s.hanging = hanging.Phase
		s.hungSince = hanging.PhaseStart
	case r.Failures > 0:
		s.lists = listsFail
		if s.relistErr.TimedOut() {
			s.hungSince = r.Last.Start
		}
	case s.listLate || r.HadListOf(slowCall, 1):
		s.lists = listsSlow
	}
	s.recovering = s.answeringAgain()
	s.callsFail = s.lists == listsHang || r.Failures > 0 || s.f.Status.LastErr != nil
	s.listsPrompt = s.listsAnsweredAtOnce()
}

// fillStatus fills in how Status is answered.
func (s *signals) fillStatus() {
	status := &s.f.Status
	switch {
	case status.LastErr == nil && !s.unanswered(status.InFlightSince, statusHangAfter):
		s.status = statusOK
	case s.statusHangsAlone() || s.statusFailsAlone() || s.statusLateAlone():
		s.status = statusAlone
	default:
		s.status = statusFails
	}
}

// listInFlightFor reports whether the list in flight has been unanswered for a time.
func (s *signals) listInFlightFor(limit time.Duration) bool {
	relist := s.f.Relist.InFlight
	return relist != nil && relist.Phase != facts.PhaseInspect && relist.Waited(s.moment) >= limit
}

// listUnanswered returns the relist whose list is unanswered for longer than its limit, nil for none. A list that is
// arriving counts only once it takes longer than hangSurely.
func (s *signals) listUnanswered(usual time.Duration) *facts.InFlight {
	relist := s.f.Relist.InFlight
	if relist == nil || !s.listInFlightFor(s.listLimit(usual)) {
		return nil
	}
	if s.age(s.f.Arriving) < usual && !s.listInFlightFor(hangSurely) {
		return nil
	}
	return relist
}

// listLimit is how long the list in flight may be unanswered, by those before it and its size; usual is the minimum.
func (s *signals) listLimit(usual time.Duration) time.Duration {
	var slow time.Duration
	lists := s.f.Relist.RecentLists(recentLists)
	if len(lists) > 0 {
		slow = max(3*facts.Median(lists), lists[len(lists)-1]+usual)
	}
	bytes := s.f.Calls[string(s.f.Relist.InFlight.Phase)].Bytes
	return max(usual+time.Duration(bytes)*hangPerMiB/(1<<20), min(slow, hangSurely))
}

func (s *signals) listsAnsweredAtOnce() bool {
	relist := s.f.Relist.InFlight
	if relist != nil && relist.PhaseStart.Sub(relist.Start) >= facts.HangAfter {
		return false // a list of the relist in flight has just been answered
	}
	return !s.f.Relist.HadListOf(facts.HangAfter, 2)
}

func (s *signals) answeringAgain() bool {
	for _, c := range s.f.Calls {
		if !s.hungSince.IsZero() && c.LastOK.After(s.hungSince) && c.LastOKDuration >= facts.HangAfter &&
			s.age(c.LastOK) < facts.HangAfter {
			return true
		}
	}
	return false
}

// statusHangsAlone reports whether Status hangs while another call is answered at once.
func (s *signals) statusHangsAlone() bool {
	start := s.f.Status.InFlightSince
	return !start.IsZero() && s.listsPrompt && s.answeredAtOnce(start.Add(answerAfterStatus))
}

// statusErrCounts reports whether the last Status failed by itself: one that failed while the lists failed too is no
// evidence about Status.
func (s *signals) statusErrCounts() bool {
	failed := s.f.Calls[opStatus].LastFailed
	return s.f.Status.LastErr != nil && s.f.Relist.Failures == 0 && failed.After(s.f.Relist.AnsweredSince) &&
		!s.f.Calls[string(facts.PhaseListPodSandbox)].LastFailed.After(failed) &&
		!s.f.Calls[string(facts.PhaseListContainers)].LastFailed.After(failed)
}

// statusFailsAlone reports whether Status was answered with an error, and another call has been answered since.
func (s *signals) statusFailsAlone() bool {
	err := s.f.Status.LastErr
	return s.statusErrCounts() && err.Answered() && !err.NotInitialized && s.lastAnswer.After(s.f.Calls[opStatus].LastFailed)
}

// statusLateAlone reports whether Status has not been good for long while another call is answered. A Status that got
// no answer, or met a runtime that was starting, failed with everything else. Status may be called just after each
// list: an answer since it was late counts.
func (s *signals) statusLateAlone() bool {
	late := s.f.Status.LastGood.Add(kubelet.StatusLate)
	return s.statusErrCounts() && s.moment.After(late) && s.lists != listsHang &&
		(s.lastAnswer.After(s.f.Calls[opStatus].LastFailed) || s.lastAnswer.After(late))
}

// answeredAtOnce reports whether a call has been answered quickly after t; one after seconds proves nothing.
func (s *signals) answeredAtOnce(t time.Time) bool {
	for _, c := range s.f.Calls {
		if c.LastOK.After(t) && c.LastOKDuration < facts.HangAfter ||
			c.LastErr.Answered() && c.LastFailed.After(t) {
			return true
		}
	}
	return false
}

// statusFailedForDescriptor reports whether Status failed for want of a descriptor, and was not answered since.
func (s *signals) statusFailedForDescriptor() bool {
	exhausted := s.process.ExhaustedAt
	failed := s.f.Calls[opStatus].LastFailed
	return !exhausted.IsZero() && s.f.Status.LastErr != nil && s.f.Runtime.StatusNeedsFile() &&
		s.age(exhausted) <= acceptsAgain && failed.Sub(exhausted) <= time.Second
}

// runtimeSlow reports whether lists hang, are slow or get no answer.
func (s *signals) runtimeSlow() bool {
	if s.lists == listsFail && s.relistErr.Answered() {
		return s.listLate
	}
	return s.lists != listsOK
}

// runtimeLate reports whether lists are late enough for a page. Lists that are merely slow explain a warning.
func (s *signals) runtimeLate() bool {
	return s.f.Relist.Failures > 0 || s.lists == listsHang || s.listInFlightFor(SlowListThreshold) ||
		s.f.Relist.HadListOf(SlowListThreshold, throttledLists)
}

// listsSlowLately reports whether one of the last few relists' lists was slow: under a quota a list that meets a
// fresh period is quick. An active reason looks further back (hysteresis).
func (s *signals) listsSlowLately(id string) bool {
	return s.f.Relist.HadListOf(slowCall, int(s.band(id, recentLists, throttledLists)))
}

// callEvidence lists the call in flight, the last failure and the last answer.
func (s *signals) callEvidence() (out lines) {
	out = append(out, s.relistEvidence()...)
	out = append(out, s.versionEvidence()...)
	status := s.f.Status.InFlightSince
	out.addIf(s.unanswered(status, statusHangAfter), "status unanswered for %s", s.ago(status))
	p := &s.f.Probe
	out.addIf(!p.FailedSince.IsZero(), "a fresh connection: %s", ProbeText(p))
	if !s.frozenThreads {
		for _, unexplained := range []wchan.Kind{wchan.Unread, wchan.Other, wchan.Exit} {
			out.text(s.blockedText(s.blockedIn(unexplained, blockedAfter)))
		}
	}
	return append(out, s.lastAnswerText())
}

// relistEvidence states which list hangs, or why the last relist failed.
func (s *signals) relistEvidence() (out lines) {
	if s.lists == listsHang {
		out.add("%s unanswered for %s", s.hanging, s.ago(s.hungSince))
	} else if s.relistErr != nil {
		out.text(s.relistErr.Text())
	}
	r := &s.f.Relist
	// A list that hangs is given up after --rpc-timeout and called again, and its age starts again.
	if r.Failures > 1 || r.Failures == 1 && s.lists == listsHang {
		duration := "yet"
		if !r.LastSeen.IsZero() {
			duration = "for " + s.ago(r.LastSeen)
		}
		out.add("no relist has succeeded %s (%d failed)", duration, r.Failures)
	}
	return out
}

// versionEvidence states how Version is answered where it is not.
func (s *signals) versionEvidence() (out lines) {
	c := s.f.Calls[opVersion]
	if s.unanswered(c.InFlightSince, hangProbeAfter/2) {
		out.add("version unanswered for %s", s.ago(c.InFlightSince))
	} else if c.LastErr != nil && !c.LastErr.Answered() && c.LastFailed.After(c.LastOK) {
		out.add("version got no answer %s ago", s.ago(c.LastFailed))
	}
	return out
}

// lastAnswerText states when the runtime last answered a call.
func (s *signals) lastAnswerText() string {
	if s.callsAnswered.IsZero() {
		return "nothing has been answered since plegd started"
	}
	return fmt.Sprintf("last answer %s ago", s.ago(s.callsAnswered))
}
