package health

import (
	"cmp"
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/kubelet"
)

// A fault that stops a relist is named within 3 s: a period, facts.HangAfter, and a judgement every 250 ms.
const (
	hangSurely         = 20 * time.Second
	suspectAfter       = 500 * time.Millisecond // the same for a call that is suspected to hang
	hangPerMiB         = 100 * time.Millisecond // of that list's last answer: a large one takes long to make
	recentLists        = 3
	hangProbeAfter     = 900 * time.Millisecond // for which a second call is unanswered beside it
	unknownAfter       = 3 * time.Second        // for which something may be wrong without a name
	versionReasonAfter = 5 * time.Second        // for which Version is unanswered beside lists that are answered
	statusHangAfter    = kubelet.StatusHangAfter
	// answerAfterStatus is how long after the start of a Status that hangs another call must be answered.
	answerAfterStatus = time.Second
	inspectHangAfter  = 3 * time.Second // for which a pod's inspection is unanswered
)

// The operations that reasons speak of, as the kubelet's metrics name them.
const (
	opVersion = "version"
	opStatus  = "status"
)

// view is the facts at one moment with what several reasons ask of them.
type view struct {
	f        *facts.Facts
	now      time.Time
	previous *facts.Verdict // for the hold and the band only
	// callsAnswered is when the runtime last answered anything on the held connection, an
	// error included; lastAnswer the same, or when the hop was last answered. Zero for never.
	callsAnswered, lastAnswer time.Time
	process                   *facts.Process // these are without values where the node does not show them
	cgroup                    *facts.Cgroup
	queue                     *facts.Queue
	node                      *facts.Node
	state
	kubelet  kubelet.Rules // what its rules say
	starting bool          // it is too early for a verdict; false for a hop
	hop      *facts.Hop    // the hop behind the runtime that this view is of, nil for the runtime
}

// newView returns the view of a hop behind the runtime where the facts are At one: its socket,
// process and probe stand for the runtime's. The calls remain: they pass through every hop.
func newView(f *facts.Facts, now time.Time, previous *facts.Verdict) *view {
	w := &view{f: f, now: now, previous: previous, kubelet: kubelet.Apply(f, now)}
	for _, c := range f.Calls {
		w.callsAnswered = facts.Later(w.callsAnswered, c.LastOK)
		if c.LastErr.Answered() {
			w.callsAnswered = facts.Later(w.callsAnswered, c.LastFailed)
		}
	}
	w.lastAnswer = w.callsAnswered
	if h := &f.Evidence.Hop; h.Socket != "" {
		w.hop, w.lastAnswer = h, cmp.Or(h.Answer, &facts.HopProbe{}).AnsweredAt
	}
	w.derive()
	if w.hop == nil {
		w.starting = kubelet.Starting(f, now, w.observations())
	}
	return w
}

// firstAttemptMade reports whether an endpoint was searched for and the first relist has ended, or hangs.
func (w *view) firstAttemptMade() bool {
	r := &w.f.Relist
	return !w.f.Endpoint.Searching &&
		(r.Last != nil || r.InFlight != nil && w.age(r.InFlight.Start) >= facts.HangAfter)
}

// wasActive reports whether a reason stood in the verdict before.
func (w *view) wasActive(id string) bool {
	a := w.previous.ActiveReason(id)
	return a != nil && a.Hop == w.f.Evidence.Socket
}

func (w *view) age(t time.Time) time.Duration { return w.now.Sub(t) }

// ago is the age of t in words.
func (w *view) ago(t time.Time) string { return facts.Seconds(w.age(t)) }

// refused returns the error if a list exceeds the kubelet's message limit, else nil.
func (w *view) refused() *facts.CallError {
	if w.err != nil && w.err.TooLarge() {
		return w.err
	}
	return nil
}

// callEvidence lists the call in flight, the last failure and the last answer.
func (w *view) callEvidence() (out lines) {
	r, c, s, p := &w.f.Relist, w.f.Calls[opVersion], &w.f.Status, &w.f.Probe
	if w.lists == listsHang {
		out.add("%s unanswered for %s", w.hanging, w.ago(w.hungSince))
	} else if w.err != nil {
		out.text(w.err.Text())
	}
	// A list that hangs is given up after --rpc-timeout and called again, and its age starts again.
	if r.Failures > 1 || r.Failures == 1 && w.lists == listsHang {
		since := "yet"
		if !r.LastSeen.IsZero() {
			since = "for " + w.ago(r.LastSeen)
		}
		out.add("no relist has succeeded %s (%d failed)", since, r.Failures)
	}
	if w.unanswered(c.InFlightSince, hangProbeAfter/2) {
		out.add("version unanswered for %s", w.ago(c.InFlightSince))
	} else if c.LastErr != nil && !c.LastErr.Answered() && c.LastFailed.After(c.LastOK) {
		out.add("version got no answer %s ago", w.ago(c.LastFailed))
	}
	out.when(w.unanswered(s.InFlightSince, statusHangAfter), "status unanswered for %s", w.ago(s.InFlightSince))
	out.when(!p.FailedSince.IsZero(), "a fresh connection: %s", ProbeText(p))
	for _, what := range []wait{waitUnread, waitOther, waitExit} { // in D without a reason that is known for it
		if !w.freezerHoldsThreads() {
			out.text(w.blockedText(w.blockedIn(what, blockedAfter)))
		}
	}
	return append(out, w.lastAnswerText())
}

// lastAnswerText says when the runtime last answered a call.
func (w *view) lastAnswerText() string {
	if w.callsAnswered.IsZero() {
		return "nothing has been answered since plegd started"
	}
	return fmt.Sprintf("last answer %s ago", w.ago(w.callsAnswered))
}

// Observe returns what the model of the kubelet reads beside the facts.
func Observe(f *facts.Facts, now time.Time) kubelet.Observations {
	return newView(f, now, nil).observations()
}

// observations returns what the model of the kubelet reads beside the facts.
func (w *view) observations() kubelet.Observations {
	return kubelet.Observations{
		AttemptMade:    w.firstAttemptMade(),
		LastAnswer:     w.callsAnswered,
		HungSince:      w.hungSince,
		Unanswered:     w.listUnanswered(kubelet.ListHangAfter),
		StatusFails:    w.status != statusOK,
		StatusAlone:    w.status == statusAlone,
		StatusWillFail: w.statusWillFail(),
		Unreachable:    w.link != linkAnswers && w.link != linkUnsettled,
		Blind:          w.blind(),
	}
}
