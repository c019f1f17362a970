package health

import (
	"fmt"
	"slices"
	"time"
)

// The numbers that the reasons go by. They are chosen so that a fault that
// stops a relist is named within 3 s: up to one period until the next relist
// begins, HangAfter until it counts as hanging, and a judgement every 250 ms.
const (
	// HangAfter is the minimum time for which a hanging list is unanswered. The list must
	// also take three times the median of the last recentLists lists, and that much longer
	// than the last one, up to hangSurely, so that slow lists do not count as hanging. Nor
	// does a list that is arriving.
	HangAfter  = 1500 * time.Millisecond
	hangSurely = 20 * time.Second
	// suspectAfter is the same for suspectedList and suspectedInspection.
	suspectAfter = 500 * time.Millisecond
	hangPerMiB   = 100 * time.Millisecond // of that list's last answer: a large one takes long to make
	recentLists  = 3
	// hangProbeAfter is how long a second call must be unanswered beside it.
	hangProbeAfter = 900 * time.Millisecond
	// unknownAfter is how long something may be wrong without a name.
	unknownAfter = 3 * time.Second
	// versionReasonAfter is how long Version must be unanswered beside lists that
	// are answered.
	versionReasonAfter = 5 * time.Second
	// statusHangAfter is the same for Status beside lists that answer.
	statusHangAfter = 2 * time.Second
	// answerAfterStatus is how long after the start of a Status that hangs another
	// call must be answered, to distinguish a Status that hangs from a runtime that has
	// just stopped answering at all.
	answerAfterStatus = time.Second
	// inspectHangAfter is how long a pod's inspection must be unanswered.
	inspectHangAfter = 3 * time.Second
)

// The operations that reasons speak of, as the kubelet's metrics name them.
const (
	opVersion = "version"
	opStatus  = "status"
)

// view is the facts at one moment with what several reasons ask of them.
type view struct {
	f        *Facts
	now      time.Time
	previous *Verdict
	// lastAnswer is when the runtime last answered anything on the held
	// connection, an error included; zero for never.
	lastAnswer time.Time
	// What the kubelet's rules say, whether it is too early for a verdict, the reasons
	// found so far, and the lowest layer that has a critical one.
	kubelet  kubelet
	starting bool
	verdict  *Verdict
	critical Layer
	// hop is the hop behind the runtime that this view is of, nil for the runtime's
	// own; runtime is the runtime's view there, nil here. behindRuntime are the views
	// of those hops.
	hop           *Hop
	runtime       *view
	behindRuntime []*view
}

func newView(f *Facts, now time.Time, previous *Verdict) *view {
	w := &view{f: f, now: now, previous: previous}
	for _, c := range f.Calls {
		if c.LastOK.After(w.lastAnswer) {
			w.lastAnswer = c.LastOK
		}
		if c.LastErr != nil && c.LastErr.answered() && c.LastFailed.After(w.lastAnswer) {
			w.lastAnswer = c.LastFailed
		}
	}
	return w
}

// firstAttemptMade reports whether the first search for an endpoint and the first
// relist have ended, or that relist hangs. Before that, missing evidence proves
// nothing, and no reason is named.
func (w *view) firstAttemptMade() bool {
	r := &w.f.Relist
	if w.f.Endpoint.Searching {
		return false
	}
	return r.Last != nil || r.InFlight != nil && w.age(r.InFlight.Start) >= HangAfter
}

// wasActive reports whether a reason stood in the verdict before.
func (w *view) wasActive(id string) bool {
	a := w.previous.active(id)
	return a != nil && a.Hop == w.f.Evidence.Socket
}

func (w *view) age(t time.Time) time.Duration { return w.now.Sub(t) }

// lasts reports whether something has begun, at least so long ago.
func (w *view) lasts(since time.Time, least time.Duration) bool {
	return !since.IsZero() && w.age(since) >= least
}

// hang returns the unanswered list and its start; ok is false if no list has been
// unanswered for long enough. An arriving list counts too, once it takes longer than
// hangSurely.
func (w *view) hang() (phase Phase, since time.Time, ok bool) {
	return w.listUnanswered(HangAfter)
}

// suspectedList returns a list that has been unanswered for longer than usual while
// Version was answered, before it counts as hanging: plegd can follow the wait chain
// meanwhile.
func suspectedList(f *Facts, now time.Time) (phase Phase, since time.Time, ok bool) {
	w := &view{f: f, now: now}
	if phase, since, ok = w.listUnanswered(suspectAfter); !ok || !f.answeredSince(since) {
		return "", time.Time{}, false
	}
	return phase, since, true
}

// suspectedInspection returns the inspection of a pod whose call is unanswered for
// longer than the last one took while Version has been answered, before it is said to
// hang; nil where there is none.
func suspectedInspection(f *Facts, now time.Time) *PodInspection {
	for i := range f.Relist.Inspecting {
		p := &f.Relist.Inspecting[i]
		usual := f.Calls[p.Operation].LastOKDuration
		if now.Sub(p.CallStart) >= max(3*usual, usual+suspectAfter) && f.answeredSince(p.CallStart) {
			return p
		}
	}
	return nil
}

// answeredSince reports whether Version has been answered since a moment, on the held
// connection or on a fresh one.
func (f *Facts) answeredSince(t time.Time) bool {
	return f.Version.Ended.After(t) || f.Probe.OK && f.Probe.At.After(t)
}

// hangingInspections returns the inspections that are unanswered for long enough, and
// how many were given up for it. Several calls that are each answered slowly are no
// hang.
func (w *view) hangingInspections() (hang []PodInspection, givenUp int) {
	for _, p := range w.f.Relist.Inspecting {
		if w.age(orElse(p.CallStart, p.Start)) >= inspectHangAfter {
			hang = append(hang, p)
		}
	}
	for _, p := range w.f.Relist.Failing {
		if p.Err != nil && p.Err.Code == "DeadlineExceeded" {
			givenUp++
		}
	}
	return hang, givenUp
}

// listUnanswered returns the list that is unanswered for longer than it should be; usual
// is how long that is of a list that is answered at once as a rule.
func (w *view) listUnanswered(usual time.Duration) (phase Phase, since time.Time, ok bool) {
	in := w.f.Relist.InFlight
	if in == nil || in.Phase == PhaseInspect || w.age(in.PhaseStart) < w.listLimit(usual) {
		return "", time.Time{}, false
	}
	if arriving := w.age(w.f.Arriving) < usual; arriving && w.age(in.PhaseStart) < hangSurely {
		return "", time.Time{}, false
	}
	return in.Phase, in.PhaseStart, true
}

// listLimit is how long a list may be unanswered, by the lists before it and the size
// of its last answer.
func (w *view) listLimit(usual time.Duration) time.Duration {
	lists := w.f.Relist.Lists
	var slow time.Duration
	if n := len(lists); n > 0 {
		recent := slices.Sorted(slices.Values(lists[max(0, n-recentLists):]))
		slow = max(3*recent[(len(recent)-1)/2], lists[n-1]+usual)
	}
	limit := usual
	if in := w.f.Relist.InFlight; in != nil {
		limit += time.Duration(w.f.Calls[string(in.Phase)].Bytes) * hangPerMiB / (1 << 20)
	}
	return max(limit, min(slow, hangSurely))
}

// failed returns why the last relist failed; nil when the last one to end
// succeeded.
func (w *view) failed() *CallError {
	if w.f.Relist.Failures == 0 || w.f.Relist.Last == nil {
		return nil
	}
	return w.f.Relist.Last.Err
}

// refused returns the error if a list exceeds the kubelet's message limit, else nil.
func (w *view) refused() *CallError {
	if e := w.failed(); e != nil && e.tooLarge() {
		return e
	}
	return nil
}

// unanswered reports whether an operation has been asked since t and not been
// answered: failed without an answer, or in flight for at least after.
func (w *view) unanswered(op string, t time.Time, after time.Duration) bool {
	c := w.f.Calls[op]
	if !c.InFlightSince.IsZero() && w.age(c.InFlightSince) >= after {
		return true
	}
	return c.LastErr != nil && !c.LastErr.answered() && c.LastFailed.After(t) && c.LastFailed.After(c.LastOK)
}

// heldConnectionDown reports whether the held connection is of no use: the last relist
// failed without an answer and nothing has been answered since.
func (w *view) heldConnectionDown() bool {
	e := w.failed()
	if e == nil {
		return false
	}
	return !e.answered() && !w.lastAnswer.After(w.f.Relist.Last.End)
}

// connect returns why a connection cannot be made, by the newest attempt,
// the held one's or a fresh one; CauseNone when one can be, or when the held
// connection works.
func (w *view) connect() (Cause, string) {
	if w.hop != nil {
		return w.hopConnect()
	}
	if !w.heldConnectionDown() {
		return CauseNone, ""
	}
	d, p := w.f.Dial, w.f.Probe
	dialed := d.Cause != CauseNone && d.At.After(w.lastAnswer)
	probed := p.Cause != CauseNone && p.Stage == StageConnect && p.At.After(w.lastAnswer)
	switch {
	case probed && (!dialed || p.At.After(d.At)):
		return p.Cause, p.Detail
	case dialed:
		return d.Cause, d.Detail
	}
	return CauseNone, ""
}

// freshDialFailure returns why a fresh connection fails while the held one is
// still answered.
func (w *view) freshDialFailure() (Stage, Cause, string) {
	p := w.f.Probe
	if w.hop != nil && p.Stage == StageConnect {
		return "", CauseNone, "" // connect returns it
	}
	if p.OK || p.FailedSince.IsZero() || w.f.Relist.Failures > 0 || !w.callsAnswered().After(p.FailedSince) {
		return "", CauseNone, ""
	}
	if _, _, hanging := w.hang(); hanging || p.Stage != StageConnect && !w.listsAnsweredAtOnce() {
		return "", CauseNone, ""
	}
	// The held connection was made since: what the probe met is over.
	if d := w.f.Dial; d.Cause == CauseNone && d.At.After(p.At) {
		return "", CauseNone, ""
	}
	return p.Stage, p.Cause, p.Detail
}

// listsAnsweredAtOnce reports whether the lists of the last two relists and of the one
// in flight were answered at once: then the runtime was able to answer all the time
// that a fresh connection waited. Just after a hang it was not, and the queue's content
// from then proves nothing.
func (w *view) listsAnsweredAtOnce() bool {
	if in := w.f.Relist.InFlight; in != nil && in.PhaseStart.Sub(in.Start) >= HangAfter {
		return false // a list of the relist under way has just been answered
	}
	lists := w.f.Relist.Lists
	for _, d := range lists[max(0, len(lists)-2):] {
		if d >= HangAfter {
			return false
		}
	}
	return true
}

// nothingAnswers reports whether nothing at all answers: no connection can be made, or a
// list hangs (or has run into its deadline) and a call made beside it, after
// the last answer, is not answered either.
func (w *view) nothingAnswers() bool {
	if w.hop != nil {
		return w.hopSilent()
	}
	if c, _ := w.connect(); c != CauseNone || w.f.Endpoint.Path == "" {
		return true
	}
	_, ok := w.hangSince()
	if !ok || w.age(w.lastAnswer) < hangProbeAfter || !w.unanswered(opVersion, w.lastAnswer, hangProbeAfter) {
		return false
	}
	// Another call was answered while this one waited: then Status decides.
	since := w.f.Version.HangsSince
	return since.IsZero() || since.After(w.lastAnswer) || w.statusTrouble()
}

// otherCallAnswered reports whether another call has been answered while a list hung.
func (w *view) otherCallAnswered(since time.Time) bool {
	return w.lastAnswer.After(since) && !w.answeringAgain()
}

// answeringAgain reports whether a list hangs and another call, which took as long,
// has just been answered: everything hung, and the list is given as much time again.
func (w *view) answeringAgain() bool {
	since, ok := w.hangSince()
	if !ok {
		return false
	}
	for _, c := range w.f.Calls {
		if c.LastOK.After(since) && c.LastOKDuration >= HangAfter && w.age(c.LastOK) < HangAfter {
			return true
		}
	}
	return false
}

// hangSince returns since when a list hangs, or the start of the last relist
// when that ran into its deadline.
func (w *view) hangSince() (time.Time, bool) {
	if _, since, ok := w.hang(); ok {
		return since, true
	}
	if e := w.failed(); e != nil && e.Code == "DeadlineExceeded" {
		return w.f.Relist.Last.Start, true
	}
	return time.Time{}, false
}

// relistTrouble reports whether a relist has failed, or one has been under way
// for more than two periods, plegd's own or the modelled kubelet's.
func (w *view) relistTrouble() bool {
	r := &w.f.Relist
	long := w.f.Config.long()
	underWay := r.InFlight != nil && w.age(r.InFlight.Start) > long
	modelled := !w.f.Modelled.BusySince.IsZero() && w.age(w.f.Modelled.BusySince) > long
	return r.Failures > 0 || underWay || modelled
}

// statusTrouble reports whether Status fails or hangs.
func (w *view) statusTrouble() bool {
	s := &w.f.Status
	return s.LastErr != nil || !s.InFlightSince.IsZero() && w.age(s.InFlightSince) >= statusHangAfter
}

// answeredWhileStatusFails reports whether other calls are answered while Status
// fails or hangs: one was, well after Status began to hang or after it failed,
// or nothing has spoken against it since that was last so.
func (w *view) answeredWhileStatusFails() bool {
	s := &w.f.Status
	if !s.InFlightSince.IsZero() && w.listsAnsweredAtOnce() && w.answeredAtOnce(s.InFlightSince.Add(answerAfterStatus)) {
		return true
	}
	// One that failed for want of an answer, while the runtime was starting or
	// while the lists failed too, failed with everything else: the next one, a
	// second later, decides.
	if s.LastErr != nil && w.f.Relist.Failures == 0 && w.f.Calls[opStatus].LastFailed.After(w.f.Relist.AnsweredSince) &&
		s.LastErr.answered() && !s.LastErr.NotInitialized && w.lastAnswer.After(w.f.Calls[opStatus].LastFailed) {
		return true
	}
	_, _, hanging := w.hang()
	if w.f.Relist.Failures > 0 || hanging {
		return false
	}
	return w.statusFailsWhileListsSucceed()
}

// answeredAtOnce reports whether a call has been answered after t that did not wait
// long for it: a runtime that answers one call after seconds, as one without a CPU
// does, answers the others as late.
func (w *view) answeredAtOnce(t time.Time) bool {
	for _, c := range w.f.Calls {
		if c.LastOK.After(t) && c.LastOKDuration < HangAfter {
			return true
		}
		if c.LastErr != nil && c.LastErr.answered() && c.LastFailed.After(t) {
			return true
		}
	}
	return false
}

// statusFailsWhileListsSucceed reports whether Status, not good for long, has failed
// since the lists are answered, with any error. A Status that failed while the lists
// failed too is no evidence about Status.
func (w *view) statusFailsWhileListsSucceed() bool {
	failed := w.f.Calls[opStatus].LastFailed
	if w.f.Status.LastErr == nil || w.age(w.f.Status.LastGood) <= statusLate {
		return false
	}
	for _, phase := range []Phase{PhaseListPodSandbox, PhaseListContainers} {
		if w.f.Calls[string(phase)].LastFailed.After(failed) {
			return false
		}
	}
	// Status may be called just after each list: an answer after an earlier failure counts.
	earlier := w.f.Status.LastGood.Add(statusLate)
	return failed.After(w.f.Relist.AnsweredSince) && (w.lastAnswer.After(failed) || w.lastAnswer.After(earlier))
}

// troubleFor is how long the relist has been failing or hanging.
func (w *view) troubleFor() time.Duration {
	r := &w.f.Relist
	var d time.Duration
	if _, since, ok := w.hang(); ok {
		d = w.age(since)
	}
	if r.Failures > 0 && r.Last != nil {
		d = max(d, w.age(r.Last.Start)+time.Duration(r.Failures-1)*w.f.Config.long()/2)
	}
	return d
}

// settled reports whether plegd has seen for itself how the runtime answers: the
// first relist and the first Status have ended, or have been in flight for more
// than two periods.
func (w *view) settled() bool {
	long := w.f.Config.long()
	relist := w.f.Relist.Last != nil || w.f.Relist.InFlight != nil && w.age(w.f.Relist.InFlight.Start) > long
	s := &w.f.Status
	answered, hangs := s.Answered && !s.Restored, w.lasts(s.InFlightSince, long)
	status := answered || hangs || s.LastErr != nil
	return relist && status
}

// callEvidence lists the call in flight, the last failure and the last answer.
func (w *view) callEvidence() []string {
	var out []string
	if phase, since, ok := w.hang(); ok {
		out = append(out, fmt.Sprintf("%s unanswered for %s", phase, short(w.age(since))))
	} else if e := w.failed(); e != nil {
		out = append(out, fmt.Sprintf("%s failed: %s: %s", e.Operation, e.Code, e.Message))
	}
	out = append(out, w.againEvidence()...)
	if c := w.f.Calls[opVersion]; !c.InFlightSince.IsZero() && w.age(c.InFlightSince) >= hangProbeAfter/2 {
		out = append(out, fmt.Sprintf("version unanswered for %s", short(w.age(c.InFlightSince))))
	} else if c.LastErr != nil && !c.LastErr.answered() && c.LastFailed.After(c.LastOK) {
		out = append(out, fmt.Sprintf("version got no answer %s ago", short(w.age(c.LastFailed))))
	}
	if !w.f.Status.InFlightSince.IsZero() && w.age(w.f.Status.InFlightSince) >= statusHangAfter {
		out = append(out, fmt.Sprintf("status unanswered for %s", short(w.age(w.f.Status.InFlightSince))))
	}
	if p := w.f.Probe; !p.FailedSince.IsZero() {
		out = append(out, "a fresh connection: "+ProbeText(&p))
	}
	out = append(out, w.unexplainedThreads()...)
	if w.lastAnswer.IsZero() {
		return append(out, "nothing has been answered since plegd started")
	}
	return append(out, fmt.Sprintf("last answer %s ago", short(w.age(w.lastAnswer))))
}

// againEvidence says since when no relist has succeeded, where that is more than
// the present call or the last failure shows: a list that hangs is given up
// after --rpc-timeout and called again, and its age starts again.
func (w *view) againEvidence() []string {
	r := &w.f.Relist
	if _, _, hanging := w.hang(); r.Failures == 0 || r.Failures == 1 && !hanging {
		return nil
	}
	since := "yet"
	if !r.LastSeen.IsZero() {
		since = "for " + short(w.age(r.LastSeen))
	}
	return []string{fmt.Sprintf("no relist has succeeded %s (%d failed)", since, r.Failures)}
}

func (w *view) startingEvidence() []string {
	if w.f.Endpoint.Searching {
		return []string{fmt.Sprintf("plegd started %s ago and is looking for the runtime's socket",
			short(w.age(w.f.Started)))}
	}
	return []string{fmt.Sprintf("plegd started %s ago; no relist and Status have both succeeded yet",
		short(w.age(w.f.Started)))}
}

// short prints a duration for a person: three figures at most.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
