package health

import (
	"cmp"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/kubelet"
)

// signals are what the rows of the table match on. Each is computed once per judgement, before any row is matched:
// from the facts and from the signals above it in fill. There is one set for the runtime and one for each hop behind
// it; newRuntime and newHop fill in what differs.
type signals struct {
	f        *facts.Facts
	moment   time.Time
	previous *facts.Verdict // for hold-down and hysteresis only
	hop      *facts.Hop     // the hop behind the runtime, nil for the runtime

	// The process, its cgroup, its accept queue and the node; without values where the node does not show them.
	process *facts.Process
	cgroup  *facts.Cgroup
	queue   *facts.Queue
	node    *facts.Node

	// kubelet are the kubelet's rules; starting is true while none has timed out, without a success yet. Judge fills both
	// in, as the model of the kubelet completes the facts first.
	kubelet  kubelet.Rules
	starting bool
	// attempted is true once an endpoint was searched for and the first relist has ended, or hangs.
	attempted bool

	// callsAnswered is when the runtime last answered anything on the held connection, an error included; lastAnswer
	// the same, or when the hop was last answered. Zero for never.
	callsAnswered time.Time
	lastAnswer    time.Time

	lists listState
	// hanging is the list that hangs. hungSince is its start, or that of the last relist if it ran into its deadline;
	// zero for neither.
	hanging   facts.Phase
	hungSince time.Time
	// relistErr is why the last relist failed, nil if it succeeded; tooLarge the same if a list exceeds the kubelet's
	// message limit.
	relistErr *facts.CallError
	tooLarge  *facts.CallError
	// listLate is true while the list in flight takes longer than slowCall.
	listLate bool
	// listsPrompt is true if the lists of the last two relists and of the one in flight were answered at once: just
	// after a hang a connection that waits proves nothing.
	listsPrompt bool
	// recovering is true while a list hangs and another call, which took as long, has just been answered: the list's
	// timeout restarts.
	recovering bool
	// callsFail is true while calls to the runtime fail or hang.
	callsFail bool

	status statusState
	// statusWillFail is true if the next Status needs a file descriptor and none is free; statusLacksDescriptor if the
	// last one failed for that.
	statusWillFail        bool
	statusLacksDescriptor bool

	link link
	// cause and detail are why no connection can be made, by the newest attempt; empty while the held connection works.
	cause  facts.Cause
	detail string
	// freshProbe is the fresh dial that fails while the held connection still answers, else empty.
	freshProbe facts.Probe

	// elsewhere is the process that a new connection reaches if it is not the one behind the held connection.
	elsewhere *facts.Listener
	// hidden is true if the socket is there for the runtime and missing in plegd's own mounts; blind if that or a
	// permission keeps plegd alone from the runtime.
	hidden bool
	blind  bool
	// justListening is true if no fresh connect has begun since the listener was first seen.
	justListening bool
	// probeOutdated is true if what the last probe met has gone since, or another socket listens now.
	probeOutdated bool
	// inheritor is a process that is no runtime and keeps the runtime's listener; lingering the runtime's process that
	// has closed its socket and does not end.
	inheritor *facts.Process
	lingering *facts.Process

	// queueDrains is true while the accept queue is draining, queueFull while it is full, notAccepting while a
	// connection has waited to be accepted for queueWaits.
	queueDrains  bool
	queueFull    bool
	notAccepting bool
	// descriptorsFreed is true if no descriptor was free until a moment ago, noDescriptor while a connection waits for one.
	descriptorsFreed bool
	noDescriptor     bool

	// callsSlow is true while lists hang, take slowCall or get no answer; relistsSlow also while relists fail.
	callsSlow   bool
	relistsSlow bool
	// callsLate is true while calls are late enough for a page: relists fail, a list hangs, or one of the last ten
	// relists' lists took SlowListThreshold; nodeLate also while new connections wait.
	callsLate bool
	nodeLate  bool

	// frozenThreads is true while a freezer of cgroup v1 may hold the threads in D.
	frozenThreads bool
	// quotaTakesTime is true while the CPU quota takes time from the process, or may have; quotaUnmeasured while how
	// much it has taken since a list began to hang is not known yet.
	quotaTakesTime  bool
	quotaUnmeasured bool
	// busyCPUs is what shows that the node's CPUs are short, "" for nothing.
	busyCPUs string

	// inspectionsHang is true while the status of a pod is unanswered for inspectHangAfter.
	inspectionsHang bool
	// chain is the wait chain, nil for none and for an old one. chainCause is the reason that it proves, "" for none; callCause
	// the same, or the one that a chain has proved of a call before and that still stands.
	chain      *facts.Chain
	chainCause string
	callCause  string
}

// newSignals returns the signals of the runtime or, if the facts are At a hop, of that hop: its socket, process and
// probe stand for the runtime's. The calls remain: they pass through every hop.
func newSignals(f *facts.Facts, moment time.Time, previous *facts.Verdict) *signals {
	e := &f.Evidence
	s := &signals{
		f:        f,
		moment:   moment,
		previous: previous,
		process:  cmp.Or(e.Process, &facts.Process{}),
		cgroup:   cmp.Or(e.Cgroup, &facts.Cgroup{}),
		queue:    cmp.Or(e.Queue, &facts.Queue{}),
		node:     cmp.Or(e.Node, &facts.Node{CPUIdle: -1}),
	}
	s.attempted = s.firstAttemptMade()
	s.callsAnswered = lastAnswered(f.Calls)
	if e.Socket == "" {
		newRuntime(s)
	} else {
		newHop(s, &e.Hop)
	}
	return s
}

// newRuntime fills in the signals of the runtime.
func newRuntime(s *signals) {
	s.lastAnswer = s.callsAnswered
	s.fillCalls()
	s.cause, s.detail = s.runtimeCause()
	s.fillStatus()
	s.link = s.runtimeLink()
	s.freshProbe = s.freshFailure()
	s.callsSlow = s.runtimeSlow()
	s.callsLate = s.runtimeLate()
	s.fill()
}

// newHop fills in the signals of a hop behind the runtime.
func newHop(s *signals, h *facts.Hop) {
	s.hop = h
	s.lastAnswer = cmp.Or(h.Answer, &facts.HopProbe{}).AnsweredAt
	s.fillCalls()
	s.cause, s.detail = s.hopCause()
	s.fillStatus()
	s.link = s.hopLink()
	if s.f.Probe.Stage != facts.StageConnect { // that is its cause
		s.freshProbe = s.freshFailure()
	}
	p := &s.f.Probe
	s.callsSlow = p.FailsForAll() || p.RPC >= slowCall || s.runtimeSlow()
	s.callsLate = p.FailsForAll() || p.RPC >= SlowListThreshold || s.runtimeLate()
	s.fill()
}

// fill fills in what the runtime and a hop have in common, each signal after those that it reads.
func (s *signals) fill() {
	s.elsewhere = s.otherListener()
	s.hidden = s.f.Evidence.Listener != nil && s.f.Evidence.Listener.OtherMounts
	s.blind = s.cause == facts.CausePermissionDenied || s.cause == facts.CauseMissing && s.hidden
	s.justListening = !s.queue.ListeningSince.IsZero() && !s.f.Probe.At.After(s.queue.ListeningSince)
	s.probeOutdated = s.probedEarlier()
	s.inheritor = s.findInheritor()
	s.lingering = s.findLingering()

	s.queueDrains = s.age(s.queue.FellAt) <= queueFalls && s.queue.Length <= s.queue.Limit
	s.queueFull = s.isQueueFull()
	s.notAccepting = s.connectionWaits()
	s.descriptorsFreed = s.process.Alive && !s.process.FDsExhausted() && s.age(s.process.ExhaustedAt) <= acceptsAgain
	s.noDescriptor = s.waitsForDescriptor()
	s.statusWillFail = s.process.FDsExhausted() && s.f.Runtime.StatusNeedsFile()
	s.statusLacksDescriptor = s.statusFailedForDescriptor()

	s.relistsSlow = s.f.Relist.Failures > 0 || s.callsSlow
	s.nodeLate = s.callsLate || s.queueFull || s.notAccepting
	s.frozenThreads = s.freezerHoldsThreads()
	s.quotaTakesTime = s.quotaTook()
	s.quotaUnmeasured = !s.hungSince.IsZero() && s.cgroup.ThrottledAt.After(s.hungSince) && s.age(s.hungSince) < quotaMeasured
	s.busyCPUs = s.busyCPUsText()

	s.inspectionsHang = len(s.stalledInspections(inspectHangAfter)) > 0
	s.chain = s.validChain()
	s.chainCause = s.provenByChain()
	s.callCause = cmp.Or(s.chainCause, s.earlierCause())
}

// lastAnswered returns when any call was last answered, an error included; zero for never.
func lastAnswered(calls map[string]facts.Call) (last time.Time) {
	for _, c := range calls {
		last = facts.Later(last, c.LastOK)
		if c.LastErr.Answered() {
			last = facts.Later(last, c.LastFailed)
		}
	}
	return last
}

func (s *signals) firstAttemptMade() bool {
	return !s.f.Endpoint.Searching &&
		(s.f.Relist.Last != nil || s.unanswered(facts.RelistBegan(s.f), facts.HangAfter))
}

// wasActive reports whether a reason was active in the previous verdict.
func (s *signals) wasActive(id string) bool {
	a := s.previous.ActiveReason(id)
	return a != nil && a.Hop == s.f.Evidence.Socket
}

func (s *signals) age(t time.Time) time.Duration { return s.moment.Sub(t) }

// ago is the age of t in words.
func (s *signals) ago(t time.Time) string { return facts.Seconds(s.age(t)) }

// unanswered reports whether a call that began at start has had no answer for limit.
func (s *signals) unanswered(start time.Time, limit time.Duration) bool {
	return facts.Unanswered(start, s.moment, limit)
}

// observations returns what the model of the kubelet reads beside the facts.
func (s *signals) observations() kubelet.Observations {
	return kubelet.Observations{
		AttemptMade:    s.attempted,
		LastAnswer:     s.callsAnswered,
		HungSince:      s.hungSince,
		Unanswered:     s.listUnanswered(kubelet.ListHangAfter),
		StatusFails:    s.status != statusOK,
		StatusAlone:    s.status == statusAlone,
		StatusWillFail: s.statusWillFail,
		Unreachable:    s.link != linkAnswers && s.link != linkUnsettled,
		APILost:        s.apiLost(),
		APIUnproven:    s.f.Evidence.KubeletAPI != nil && s.f.Evidence.KubeletAPI.Unproven,
		Blind:          s.blind,
	}
}
