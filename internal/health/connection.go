package health

import (
	"slices"

	"github.com/plegd/plegd/internal/facts"
)

// link is how far a connection to the socket gets.
type link string

const (
	linkAnswers   link = "answers"
	linkUnsettled link = "unsettled"      // a list hangs, and whether any other call is answered is not known yet
	linkHandshake link = "handshake only" // a connection can be made, and nothing is answered on it
	linkQueueFull link = "queue full"
	linkRefused   link = "refused"
	linkNone      link = "none" // nothing to connect to, or plegd may not
)

// runtimeCause returns why no connection to the runtime can be made: the last relist failed, nothing has been answered
// since, and neither the held connection's dial nor a fresh one has succeeded.
func (s *signals) runtimeCause() (facts.Cause, string) {
	if s.relistErr == nil || s.relistErr.Answered() || s.lastAnswer.After(s.f.Relist.Last.End) {
		return facts.CauseNone, ""
	}
	d := &s.f.Dial
	p := &s.f.Probe
	probeIsNewer := d.Cause == facts.CauseNone || p.At.After(d.At)
	if p.Cause != facts.CauseNone && p.Stage == facts.StageConnect && p.At.After(s.lastAnswer) && probeIsNewer {
		return p.Cause, p.Detail
	}
	if d.At.After(s.lastAnswer) {
		return d.Cause, d.Detail
	}
	return facts.CauseNone, ""
}

// hopCause returns why no connection to a hop can be made. If a hop never listened, its path may be another than the
// one that the runtime uses.
func (s *signals) hopCause() (facts.Cause, string) {
	p := &s.f.Probe
	if p.Stage != facts.StageConnect || !p.FailsForAll() {
		return facts.CauseNone, ""
	}
	failsForLong := !s.lastAnswer.IsZero() && s.age(p.FailedSince) >= hopFailsFor
	if !s.callsFail && !failsForLong {
		return facts.CauseNone, ""
	}
	return p.Cause, p.Detail
}

// causeLink returns how far a connection gets that cannot be made, "" for one that can.
func (s *signals) causeLink() link {
	switch {
	case s.cause == facts.CauseRefused:
		return linkRefused
	case s.cause == facts.CauseQueueFull:
		return linkQueueFull
	case s.cause != facts.CauseNone || s.f.Endpoint.Path == "":
		return linkNone
	}
	return ""
}

// runtimeLink returns how far a connection to the runtime gets.
func (s *signals) runtimeLink() link {
	failed := s.causeLink()
	switch {
	case failed != "":
		return failed
	case s.hungSince.IsZero():
		return linkAnswers
	case s.nothingAnswers():
		return linkHandshake
	case s.lastAnswer.After(s.hungSince) && !s.recovering:
		return linkAnswers
	}
	return linkUnsettled
}

// hopLink returns how far a connection to a hop gets.
func (s *signals) hopLink() link {
	failed := s.causeLink()
	if failed != "" {
		return failed
	}
	p := &s.f.Probe
	silent := !p.FailedSince.IsZero() && p.Stage != facts.StageConnect && p.Cause != facts.CauseProtocol
	if silent && (s.callsFail || s.age(p.FailedSince) >= hopFailsFor) {
		return linkHandshake
	}
	return linkAnswers
}

// nothingAnswers reports whether Version is not answered either while a list hangs.
func (s *signals) nothingAnswers() bool {
	version := s.f.Calls[opVersion]
	failed := version.LastErr != nil && !version.LastErr.Answered() &&
		version.LastFailed.After(s.lastAnswer) && version.LastFailed.After(version.LastOK)
	unanswered := s.unanswered(version.InFlightSince, hangProbeAfter) || failed
	if s.age(s.lastAnswer) < hangProbeAfter || !unanswered {
		return false
	}
	// Another call was answered while this one waited: then Status decides.
	start := s.f.Version.HangsSince
	return start.IsZero() || start.After(s.lastAnswer) || s.status != statusOK
}

// freshFailure returns the fresh dial that fails while the held connection is answered, an empty one for none.
func (s *signals) freshFailure() facts.Probe {
	p := s.f.Probe
	d := s.f.Dial
	fails := !p.OK && !p.FailedSince.IsZero()
	answered := s.f.Relist.Failures == 0 && s.callsAnswered.After(p.FailedSince) && s.lists != listsHang
	prompt := p.Stage == facts.StageConnect || s.listsPrompt
	heldIsNewer := d.Cause == facts.CauseNone && d.At.After(p.At)
	if !fails || !answered || !prompt || heldIsNewer {
		return facts.Probe{}
	}
	return p
}

// waitsForHops reports whether a reason of the runtime must wait for the answer of the hops behind it: while a hop
// does not answer, and until a later call is answered, a call that hangs or fails is no evidence against the runtime.
func (s *signals) waitsForHops(id string) bool {
	status := &s.f.Status
	if id == RuntimeNotReady && status.Answered && !status.RuntimeReady.Good() {
		return false // the runtime reports it
	}
	return slices.Contains(symptoms, id) && slices.ContainsFunc(s.f.Evidence.Hops, s.unsettled)
}

// unsettled reports whether a hop does not answer, has just answered again, or was probed before the last call failed.
func (s *signals) unsettled(h facts.Hop) bool {
	a := h.Answer
	switch {
	case a == nil, a.Cause == facts.CausePermissionDenied:
		return false
	case a.OK:
		failed := s.f.Calls[opStatus].LastFailed
		statusFailedLater := s.f.Status.LastErr != nil && failed.After(a.At) && s.age(failed) < facts.HangAfter
		return statusFailedLater || s.age(a.At) > facts.HangAfter || s.age(a.OKSince) < facts.HangAfter
	case a.Stage == facts.StageConnect:
		return !a.AnsweredAt.IsZero()
	}
	return true
}
