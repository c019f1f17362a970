package health

import (
	"cmp"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/kubelet"
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

// listState is how the lists of the relist under way and of the last one are answered.
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

// state is derived from the calls and dials once per judgement, for the runtime and for
// each hop behind it. The rows of the table match on it and on the facts about processes.
type state struct {
	link link
	// Why no connection can be made, by the newest attempt; empty while the held connection works.
	cause  facts.Cause
	detail string
	fresh  facts.Probe // the fresh dial that fails while the held connection still answers

	lists listState
	// hanging is the list that hangs. hungSince is its start, or that of the last relist
	// where that ran into its deadline; zero for neither.
	hanging   facts.Phase
	hungSince time.Time
	// again is true while everything hung, another call was just answered, and the list gets as much time again.
	again bool
	err   *facts.CallError // why the last relist failed, nil if it succeeded

	status statusState
}

// derive sets the state. Each part depends on the ones before it.
func (w *view) derive() {
	r, e := &w.f.Relist, &w.f.Evidence
	w.process, w.cgroup = cmp.Or(e.Process, &facts.Process{}), cmp.Or(e.Cgroup, &facts.Cgroup{})
	w.queue, w.node = cmp.Or(e.Queue, &facts.Queue{}), cmp.Or(e.Node, &facts.Node{CPUIdle: -1})
	w.lists, w.status = listsOK, statusOK
	if r.Failures > 0 && r.Last != nil {
		w.err = r.Last.Err
	}
	switch in := w.listUnanswered(facts.HangAfter); {
	case in != nil:
		w.lists, w.hanging, w.hungSince = listsHang, in.Phase, in.PhaseStart
	case r.Failures > 0:
		w.lists = listsFail
		if w.err.TimedOut() {
			w.hungSince = r.Last.Start
		}
	case w.listLate() || r.HadListOf(slowCall, 1):
		w.lists = listsSlow
	}
	w.again = w.answeringAgain()
	w.cause, w.detail = w.connect()
	if s := &w.f.Status; s.LastErr != nil || w.unanswered(s.InFlightSince, statusHangAfter) {
		w.status = statusFails
		if w.answeredWhileStatusFails() {
			w.status = statusAlone
		}
	}
	w.link = w.deriveLink()
	w.fresh = w.freshFailure()
}

// deriveLink returns how far a connection gets.
func (w *view) deriveLink() link {
	switch p := &w.f.Probe; {
	case w.cause == facts.CauseRefused:
		return linkRefused
	case w.cause == facts.CauseQueueFull:
		return linkQueueFull
	case w.cause != facts.CauseNone || w.f.Endpoint.Path == "":
		return linkNone
	case w.hop == nil && !w.hungSince.IsZero() && w.nothingAnswers(),
		w.hop != nil && !p.FailedSince.IsZero() && p.Stage != facts.StageConnect && p.Cause != facts.CauseProtocol &&
			(w.callsFail() || w.age(p.FailedSince) >= hopFailsFor):
		return linkHandshake
	case w.hop != nil || w.hungSince.IsZero() || w.lastAnswer.After(w.hungSince) && !w.again:
		return linkAnswers
	}
	return linkUnsettled
}

// nothingAnswers reports whether Version is not answered either, beside a list that hangs.
func (w *view) nothingAnswers() bool {
	version := w.f.Calls[opVersion]
	unanswered := w.unanswered(version.InFlightSince, hangProbeAfter) || version.LastErr != nil &&
		!version.LastErr.Answered() && version.LastFailed.After(w.lastAnswer) && version.LastFailed.After(version.LastOK)
	if w.age(w.lastAnswer) < hangProbeAfter || !unanswered {
		return false
	}
	// Another call was answered while this one waited: then Status decides.
	since := w.f.Version.HangsSince
	return since.IsZero() || since.After(w.lastAnswer) || w.status != statusOK
}

// unanswered reports whether a call that began at since is unanswered for long enough.
func (w *view) unanswered(since time.Time, after time.Duration) bool {
	return !since.IsZero() && w.age(since) >= after
}

// listLate reports whether the list under way is slow already.
func (w *view) listLate() bool { return w.listLateFor(slowCall) }

// listLateFor reports whether the list under way has been unanswered for a time.
func (w *view) listLateFor(limit time.Duration) bool {
	relist := w.f.Relist.InFlight
	return relist != nil && relist.Phase != facts.PhaseInspect && w.age(relist.PhaseStart) >= limit
}

// listUnanswered returns the relist whose list is unanswered for longer than listLimit, nil for
// none. A list that is arriving counts only once it takes longer than hangSurely.
func (w *view) listUnanswered(usual time.Duration) *facts.InFlight {
	in := w.f.Relist.InFlight
	if in == nil || in.Phase == facts.PhaseInspect || w.age(in.PhaseStart) < w.listLimit(usual) ||
		w.age(w.f.Arriving) < usual && w.age(in.PhaseStart) < hangSurely {
		return nil
	}
	return in
}

// listLimit is how long a list may be unanswered, by those before it and its size; usual is the least.
func (w *view) listLimit(usual time.Duration) time.Duration {
	var slow time.Duration
	if lists := w.f.Relist.RecentLists(recentLists); len(lists) > 0 {
		median := slices.Sorted(slices.Values(lists))[(len(lists)-1)/2]
		slow = max(3*median, lists[len(lists)-1]+usual)
	}
	bytes := w.f.Calls[string(w.f.Relist.InFlight.Phase)].Bytes
	return max(usual+time.Duration(bytes)*hangPerMiB/(1<<20), min(slow, hangSurely))
}

// connect returns why no connection can be made: the last relist failed, nothing has been
// answered since, and neither the held connection's dial nor a fresh one has succeeded.
func (w *view) connect() (facts.Cause, string) {
	switch d, p := &w.f.Dial, &w.f.Probe; {
	case w.hop != nil && (p.Stage != facts.StageConnect || !p.FailsForAll() || !w.callsFail() &&
		(w.lastAnswer.IsZero() || w.age(p.FailedSince) < hopFailsFor)):
		// Where a hop never listened, its path may be another than the one that the runtime uses.
	case w.hop != nil:
		return p.Cause, p.Detail
	case w.err == nil || w.err.Answered() || w.lastAnswer.After(w.f.Relist.Last.End):
	case p.Cause != facts.CauseNone && p.Stage == facts.StageConnect && p.At.After(w.lastAnswer) &&
		(d.Cause == facts.CauseNone || p.At.After(d.At)):
		return p.Cause, p.Detail
	case d.At.After(w.lastAnswer):
		return d.Cause, d.Detail
	}
	return facts.CauseNone, ""
}

// freshFailure returns the fresh dial that fails while the held connection is answered.
func (w *view) freshFailure() (none facts.Probe) {
	p, d := w.f.Probe, w.f.Dial
	switch {
	case w.hop != nil && p.Stage == facts.StageConnect: // that is its cause
	case p.OK || p.FailedSince.IsZero() || w.f.Relist.Failures > 0 || !w.callsAnswered.After(p.FailedSince):
	case w.lists == listsHang || p.Stage != facts.StageConnect && !w.listsAnsweredAtOnce():
	case d.Cause == facts.CauseNone && d.At.After(p.At): // the held connection was made since
	default:
		return p
	}
	return none
}

// listsAnsweredAtOnce reports whether the lists of the last two relists and of the one in
// flight were answered at once: just after a hang a connection that waits proves nothing.
func (w *view) listsAnsweredAtOnce() bool {
	if in := w.f.Relist.InFlight; in != nil && in.PhaseStart.Sub(in.Start) >= facts.HangAfter {
		return false // a list of the relist under way has just been answered
	}
	return !w.f.Relist.HadListOf(facts.HangAfter, 2)
}

// answeringAgain reports whether a list hangs and another call, which took as long, has just been answered.
func (w *view) answeringAgain() bool {
	for _, c := range w.f.Calls {
		if !w.hungSince.IsZero() && c.LastOK.After(w.hungSince) && c.LastOKDuration >= facts.HangAfter &&
			w.age(c.LastOK) < facts.HangAfter {
			return true
		}
	}
	return false
}

// answeredWhileStatusFails reports whether other calls are answered while Status fails or hangs.
func (w *view) answeredWhileStatusFails() bool {
	s := &w.f.Status
	if !s.InFlightSince.IsZero() && w.listsAnsweredAtOnce() && w.answeredAtOnce(s.InFlightSince.Add(answerAfterStatus)) {
		return true
	}
	// A Status that failed while the lists failed too is no evidence about Status.
	failed := w.f.Calls[opStatus].LastFailed
	if s.LastErr == nil || w.f.Relist.Failures > 0 || !failed.After(w.f.Relist.AnsweredSince) ||
		w.f.Calls[string(facts.PhaseListPodSandbox)].LastFailed.After(failed) ||
		w.f.Calls[string(facts.PhaseListContainers)].LastFailed.After(failed) {
		return false
	}
	if s.LastErr.Answered() && !s.LastErr.NotInitialized && w.lastAnswer.After(failed) {
		return true
	}
	// One that got no answer, or met a runtime that was starting, failed with everything else: it must not have been
	// good for long. Status may be called just after each list: an answer since it was late counts.
	late := s.LastGood.Add(kubelet.StatusLate)
	return w.now.After(late) && w.lists != listsHang && (w.lastAnswer.After(failed) || w.lastAnswer.After(late))
}

// answeredAtOnce reports whether a call has been answered quickly after t; one after seconds proves nothing.
func (w *view) answeredAtOnce(t time.Time) bool {
	for _, c := range w.f.Calls {
		if c.LastOK.After(t) && c.LastOKDuration < facts.HangAfter ||
			c.LastErr.Answered() && c.LastFailed.After(t) {
			return true
		}
	}
	return false
}

// listsSuffer reports whether lists hang, are slow or get no answer; at a hop, whether that answers late or not.
func (w *view) listsSuffer() bool {
	if p := &w.f.Probe; w.hop != nil && (p.FailsForAll() || p.RPC >= slowCall) {
		return true
	}
	if w.lists == listsFail && w.err.Answered() {
		return w.listLate()
	}
	return w.lists != listsOK
}

// relistSuffers reports whether relists fail, hang or are slow.
func (w *view) relistSuffers() bool { return w.f.Relist.Failures > 0 || w.listsSuffer() }

// callsLate reports whether calls are late enough for a page: relists fail, a list hangs, or one of the last ten
// relists' lists took as long as RelistSlow needs. Lists that are merely slow explain a warning.
func (w *view) callsLate() bool {
	if w.hop != nil && (w.f.Probe.FailsForAll() || w.f.Probe.RPC >= SlowListThreshold) {
		return true
	}
	return w.f.Relist.Failures > 0 || w.lists == listsHang || w.listLateFor(SlowListThreshold) ||
		w.f.Relist.HadListOf(SlowListThreshold, throttledLists)
}

// callsOrAcceptLate reports whether calls are late enough for a page, or new connections are.
func (w *view) callsOrAcceptLate() bool { return w.callsLate() || w.queueFull() || w.notAccepting() }
