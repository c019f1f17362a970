package health

import "time"

// The node status update of the kubelet (pkg/kubelet/kubelet.go, Run:
// JitterUntil of syncNodeStatus with nodeStatusUpdateFrequency, jitter 0.04,
// sliding).
const (
	// DefaultNodeStatusPeriod is the kubelet's default nodeStatusUpdateFrequency.
	DefaultNodeStatusPeriod = 10 * time.Second
	// nodeStatusJitter is the largest addition to that period, as a share of it.
	nodeStatusJitter = 0.04
	// writerPhases is the number of phases of the update's tick that are
	// modelled: plegd cannot know the phase of the node's own kubelet.
	writerPhases = 53
	// writerSlack widens the predicted window on both sides: relists of plegd and
	// the kubelet begin up to a period apart, and a patch takes time to arrive.
	// hangSlack is the same where Version's timeout decides and not the rules.
	writerSlack = 800 * time.Millisecond
	hangSlack   = 300 * time.Millisecond
	// versionHangAfter is how long a Version call must be unanswered to count as
	// hanging.
	versionHangAfter = 900 * time.Millisecond
	// listHangAfter is the same of a list beside it, and besideVersion how long it
	// is left open, where no list has ended since that call, whether one hangs too.
	listHangAfter = 500 * time.Millisecond
	besideVersion = 2500 * time.Millisecond
	// releaseSettle is how long the result of an update that hung is left open
	// after its end: the kubelet's Status call ends at the same moment, and which
	// of the two is first decides whether the update finds the runtime down.
	releaseSettle = time.Second
	// startupTakes is how long a kubelet takes at most from its start to its first
	// update where every call is answered at once: 1.4 to 4.4 s were measured.
	startupTakes = 6 * time.Second
	// writerForget is how long all must be well until nothing is known of the
	// tick's phase: by then the jitter has spread it over a whole period.
	writerForget = 5 * time.Minute
	// predictFor bounds how far ahead the writer looks.
	predictFor = time.Hour
)

// VersionCheck is how Version calls on the held connection end. The kubelet's
// node status update begins with such a call and waits for its end.
type VersionCheck struct {
	// HangsSince is the start of the first of the calls in a row that got no
	// answer; zero while calls are answered or fail at once.
	HangsSince time.Time `json:"hangs_since,omitzero"`
	// Ended is when a call last ended otherwise: with an answer, or with an error
	// that did not take the whole timeout.
	Ended time.Time `json:"ended,omitzero"`
}

// NodeStatus is what the modelled kubelet has written, and will write, into the
// Ready condition: see StatusWriter.
type NodeStatus struct {
	// NotReady is true when the Ready condition in the API is False, whatever the
	// phase of the kubelet's tick is. It changes only when that is certain.
	NotReady bool `json:"not_ready"`
	// Unknown is true where the condition is, or will be, Unknown and not False: the
	// kubelet is silent, and the node controller writes it.
	Unknown bool `json:"unknown,omitzero"`
	// Message is the message of the condition as last written, "" while Ready.
	Message string `json:"message,omitzero"`
	// NotReadyFrom and NotReadyBy bound the moment at which the condition turns
	// False if nothing changes. Zero: nothing points that way.
	NotReadyFrom time.Time `json:"not_ready_from,omitzero"`
	NotReadyBy   time.Time `json:"not_ready_by,omitzero"`
	// ReadyFrom and ReadyBy bound the moment at which it turns True again. Zero:
	// it is True, or the kubelet's rules do not hold.
	ReadyFrom time.Time `json:"ready_from,omitzero"`
	ReadyBy   time.Time `json:"ready_by,omitzero"`
}

// StatusWriter is the modelled kubelet's node status update, the only part of a
// kubelet that writes the Ready condition, and the node controller that writes it
// in place of a kubelet that is silent. One update runs at a time; the next
// one begins one period, plus up to 4 %, after the last one ended. An update
// first calls Version and waits for its end, then evaluates the kubelet's rules
// and sends a change at once.
//
// The phase of the tick is not known. So the writer follows one kubelet for each
// phase, from the moment at which something is wrong: what all of them have
// written is certain, and the first and the last of them bound what comes.
//
// A StatusWriter belongs to one goroutine.
type StatusWriter struct {
	phases    []phase
	hang      hang      // the present one, as bounded when it was first seen
	wellSince time.Time // since when the rules hold and Version ends at once
	failSince time.Time // since when the rules fail
	// failedBefore is since when they failed before they held again.
	failedBefore time.Time
	heldAgain    time.Time // since when they hold again
	agreed       time.Time // since when all phases show agreedOn
	written      time.Time // when the last of them has written
	agreedOn     bool
	startup      time.Time // start of a kubelet that has yet to begin its first update
	delayed      bool      // that update waits for calls that hang
	notReady     bool
	message      string
	messageAt    time.Time
	silence      silence
}

// phase is a kubelet whose tick has one of the possible phases.
type phase struct {
	period   time.Duration
	next     time.Time // start of the next update
	begun    time.Time // start of the update that waits in Version, zero for none
	notReady bool
	// open is true from the end of an update that hung, until the next one: it may
	// have found the last good Status too old, or not, and written that.
	open bool
}

// hang is a Version call that hangs: it began to between from and by.
type hang struct {
	hanging  bool
	from, by time.Time
}

// At brings the writer to now and returns what it has written. Calls must come
// in order of now. previous is the verdict before: what it keeps from flapping
// must not flap here.
func (s *StatusWriter) At(f *Facts, now time.Time, previous *Verdict) NodeStatus {
	w := newView(f, now, previous)
	if starting(w) {
		s.phases = nil
		return NodeStatus{}
	}
	h, holds := w.versionHang(), rules(f, now).nodeReady
	if h.hanging && s.hang.hanging {
		h = s.hang // what has been answered since says nothing of its begin
	}
	s.hang = h
	if holds {
		if !s.failSince.IsZero() {
			s.failedBefore, s.heldAgain = s.failSince, now
		}
		s.failSince = time.Time{}
	} else if s.failSince.IsZero() {
		s.failSince = failingSince(f, now)
	}
	if h.hanging || !holds {
		s.wellSince = time.Time{}
		if s.phases == nil {
			s.begin(w, h)
		}
	} else if s.wellSince.IsZero() {
		s.wellSince = now
	}
	s.startUp(w)
	s.step(w, h)
	s.agree(now)
	s.silence.look(w, s.notReady, holds)
	if !s.wellSince.IsZero() && !s.notReady && now.Sub(s.wellSince) >= writerForget {
		s.phases = nil
	}
	out := s.status(w, h, holds)
	s.silence.apply(w, holds, &out)
	return out
}

// Restart begins again with a kubelet that started at t: its tick has another
// phase. What the API shows stays.
func (s *StatusWriter) Restart(t time.Time) {
	for i := range s.phases {
		s.phases[i].begun = time.Time{}
	}
	s.startup, s.delayed = t, false
}

// startUp sets the first update of a kubelet that has just started. It begins after
// the kubelet's first Status and, in the same lock, its first lists
// (pkg/kubelet/kubelet.go, updateRuntimeUp; pkg/kubelet/cm/helpers.go).
func (s *StatusWriter) startUp(w *view) {
	if s.startup.IsZero() {
		return
	}
	from, by, hanging := w.startupCalls(s.startup)
	switch {
	case !hanging && s.delayed: // released: the update follows at once
		s.spread(w.now, w.now.Add(startupTakes))
	case !hanging:
		s.spread(w.now, w.now.Add(jittered(w.f.Config.nodeStatusPeriod())))
	case !s.delayed:
		s.spread(from, by)
	}
	s.delayed = hanging
	if !hanging {
		s.startup = time.Time{}
	}
}

// startupCalls bounds the end of the calls that a kubelet makes before its first
// update, where one of them hangs.
func (w *view) startupCalls(started time.Time) (from, by time.Time, hanging bool) {
	limit := w.f.Config.RPCTimeout
	if w.statusHangs() {
		// Three of the kubelet's loops wait for Status one after the other; which of
		// them leads to the first update is not known.
		return started.Add(limit), started.Add(3*limit + startupTakes), true
	}
	if _, ok := w.hangSince(); ok {
		return started.Add(limit), started.Add(limit + startupTakes), true
	}
	return from, by, false
}

// statusHangs reports whether Status is unanswered, or was until its deadline.
func (w *view) statusHangs() bool {
	s := &w.f.Status
	if s.LastErr != nil && s.LastErr.Code == "DeadlineExceeded" {
		return true
	}
	return !s.InFlightSince.IsZero() && w.age(s.InFlightSince) >= statusHangAfter
}

// begin starts the phases: evenly over the first update that can meet the fault.
func (s *StatusWriter) begin(w *view, h hang) {
	from := failingSince(w.f, w.now)
	by := from
	if h.hanging {
		from, by = h.from, h.by
	}
	period := w.f.Config.nodeStatusPeriod()
	longest := jittered(period)
	span := by.Sub(from) + longest
	for i := range int64(writerPhases) {
		part := func(d time.Duration) time.Duration { return time.Duration(int64(d) * i / (writerPhases - 1)) }
		s.phases = append(s.phases, phase{
			period: period + part(longest-period),
			next:   from.Add(part(span)),
		})
	}
	s.agreed, s.agreedOn = w.now, false
}

// spread spreads the next updates from one moment to another.
func (s *StatusWriter) spread(from, by time.Time) {
	for i := range s.phases {
		s.phases[i].next = from.Add(by.Sub(from) * time.Duration(i) / time.Duration(len(s.phases)))
	}
}

// step makes every phase do what it has done by now.
func (s *StatusWriter) step(w *view, h hang) {
	known := w.now
	if !h.hanging {
		known = w.lastEnd()
	}
	for i := range s.phases {
		for s.stepOne(&s.phases[i], w, h, known) {
		}
	}
}

// stepOne makes the next thing happen to a phase; false when nothing has.
func (s *StatusWriter) stepOne(p *phase, w *view, h hang, known time.Time) bool {
	switch {
	case p.begun.IsZero() && p.next.After(known):
		return false
	case p.begun.IsZero() && h.hanging && !p.next.Before(h.from):
		p.begun = p.next
	case p.begun.IsZero():
		s.write(p, w, p.next)
		p.next = p.next.Add(p.period)
	case h.hanging:
		end := p.begun.Add(w.f.Config.RPCTimeout)
		if end.After(w.now) {
			return false
		}
		s.write(p, w, end)
		p.begun, p.next = time.Time{}, end.Add(p.period)
	default:
		released := laterOf(w.f.Version.Ended, p.begun)
		if w.now.Sub(released) < releaseSettle {
			return false
		}
		was := p.notReady
		s.write(p, w, w.now)
		switch {
		case p.notReady:
		case was: // certain to be over with the next update only
			p.open = !s.heldAgain.Before(released.Add(-releaseSettle))
			p.notReady = p.open
		default:
			p.open = s.failedBefore.After(p.begun)
		}
		p.begun, p.next = time.Time{}, released.Add(p.period)
	}
	return true
}

// write evaluates the rules as of t and writes the condition.
func (s *StatusWriter) write(p *phase, w *view, t time.Time) {
	if s.silence.gone(w) {
		return
	}
	s.written = laterOf(s.written, t)
	k := rules(w.f, t)
	p.notReady, p.open = !k.nodeReady, false
	if p.notReady && !t.Before(s.messageAt) {
		s.message, s.messageAt = k.message, t
	}
}

// agree notes since when all phases show the same, and takes it over when that
// has been so for the writer's slack.
func (s *StatusWriter) agree(now time.Time) {
	if len(s.phases) == 0 {
		s.notReady = false
		return
	}
	first := s.phases[0].notReady
	for _, p := range s.phases[1:] {
		if p.notReady != first {
			s.agreed = time.Time{}
			return
		}
	}
	if s.agreed.IsZero() || s.agreedOn != first {
		s.agreed, s.agreedOn = s.written, first
	}
	if now.Sub(s.agreed) >= writerSlack {
		s.notReady = first
	}
}

// status is what has been written and what comes if nothing changes.
func (s *StatusWriter) status(w *view, h hang, holds bool) NodeStatus {
	out := NodeStatus{NotReady: s.notReady}
	if s.notReady {
		out.Message = s.message
	}
	fails, points := s.failSince, true
	if holds {
		fails, points = w.rulesFailAt()
	}
	if points && !s.notReady {
		out.NotReadyFrom, out.NotReadyBy = s.window(w, h, fails, true)
	}
	if holds && !points {
		since := s.wellSince
		if since.IsZero() {
			since = w.now
		}
		out.ReadyFrom, out.ReadyBy = s.window(w, h, since, false)
	}
	return out
}

// window bounds the moment at which a phase writes notReady, of all that have
// not yet, in an update that ends at from or later. Zero times: all have, and
// none had written the opposite.
func (s *StatusWriter) window(w *view, h hang, from time.Time, notReady bool) (earliest, latest time.Time) {
	phases := s.phases
	if phases == nil && notReady {
		var quiet StatusWriter
		quiet.begin(w, hang{hanging: true, from: from, by: from})
		phases = quiet.phases
	}
	for i := range phases {
		at, ok := w.now, true
		if phases[i].notReady != notReady || phases[i].open && !notReady {
			at, ok = phases[i].writes(w, h, from)
		} else if !notReady {
			continue // it never showed anything else
		}
		if !ok {
			continue
		}
		latest = laterOf(latest, at)
		if phases[i].open && phases[i].notReady && !notReady {
			at = w.now
		}
		if earliest.IsZero() || at.Before(earliest) {
			earliest = at
		}
	}
	if earliest.IsZero() {
		return earliest, latest
	}
	slack := writerSlack
	if h.hanging {
		slack = hangSlack
	}
	return laterOf(earliest.Add(-slack), w.now), latest.Add(slack)
}

// writes returns when a phase ends its first update at from or later, if nothing
// changes. An update that should have ended by now and of which that is not known
// yet, since no call has been answered meanwhile, may end at any moment.
func (p *phase) writes(w *view, h hang, from time.Time) (time.Time, bool) {
	takes := time.Duration(0)
	if h.hanging {
		takes = w.f.Config.RPCTimeout
	}
	end := p.next.Add(takes)
	if !p.begun.IsZero() {
		end = p.begun.Add(takes)
		if !h.hanging { // it is released just now
			end = w.now
		}
	}
	for limit := w.now.Add(predictFor); end.Before(from); {
		end = end.Add(p.period + takes)
		if end.After(limit) {
			return time.Time{}, false
		}
	}
	return laterOf(end, w.now), true
}

// versionHang returns whether Version hangs, and between which moments it began
// to.
func (w *view) versionHang() hang {
	v := w.f.Version
	if v.HangsSince.IsZero() || w.age(v.HangsSince) < versionHangAfter {
		return hang{}
	}
	if !w.listsKnown(v.HangsSince) {
		return hang{}
	}
	h := hang{hanging: true, from: v.Ended, by: v.HangsSince}
	// Calls that began to hang within each other's bounds hang for the same reason.
	if last, start := w.hangingList(); !start.IsZero() && last.Before(h.by) && h.from.Before(start) {
		h.from = laterOf(h.from, last)
		if start.Before(h.by) {
			h.by = start
		}
	}
	if h.from.IsZero() { // since before plegd started
		h.from = w.f.Started
		if good := w.f.Status.LastGood; !good.IsZero() && good.Before(h.by) {
			h.from, h.by = good, good.Add(min(StatusPeriod, h.by.Sub(good)))
		}
	}
	if h.from.After(h.by) {
		h.from = h.by
	}
	return h
}

// listsKnown reports whether it is known by now if a list hangs beside a Version
// call that began at since and is unanswered.
func (w *view) listsKnown(since time.Time) bool {
	if _, _, hangs := w.listUnanswered(listHangAfter); hangs || w.age(since) >= besideVersion {
		return true
	}
	last := w.f.Relist.Last
	return last != nil && last.End.After(since)
}

// hangingList returns the start of the list that hangs and what was answered last
// before it: of all calls where nothing has been answered since, else of that one.
// A fault that holds up Version as well began between the two. Zero for no list.
func (w *view) hangingList() (last, start time.Time) {
	if in := w.f.Relist.InFlight; in != nil && in.Phase != PhaseInspect && in.PhaseStart.After(w.lastAnswer) {
		return w.lastAnswer, in.PhaseStart
	}
	if phase, start, ok := w.listUnanswered(listHangAfter); ok {
		return w.f.Calls[string(phase)].LastOK, start
	}
	return last, start
}

// lastEnd is when any call last ended other than by its timeout: up to then
// Version, too, would have ended at once.
func (w *view) lastEnd() time.Time {
	last := w.f.Version.Ended
	for _, c := range w.f.Calls {
		last = laterOf(last, c.LastOK)
		if c.LastErr != nil && c.LastErr.Code != "DeadlineExceeded" {
			last = laterOf(last, c.LastFailed)
		}
	}
	if last.IsZero() {
		return w.now // there is nobody to call
	}
	return last
}

// failingSince returns since when the first of the kubelet's rules has failed;
// now when that is not known by a time.
func failingSince(f *Facts, now time.Time) time.Time {
	since := now
	if good := f.Status.LastGood; !good.IsZero() && now.Sub(good) >= RuntimeDownAfter {
		since = good.Add(RuntimeDownAfter)
	}
	if seen := LastSeen(f); !seen.IsZero() && now.Sub(seen) > f.Config.RelistThreshold {
		if t := seen.Add(f.Config.RelistThreshold); t.Before(since) {
			since = t
		}
	}
	return since
}

// nodeStatusPeriod is the period in force: facts of an older plegd hold none.
func (c *Config) nodeStatusPeriod() time.Duration {
	if c.NodeStatusPeriod > 0 {
		return c.NodeStatusPeriod
	}
	return DefaultNodeStatusPeriod
}

// jittered is the longest time between two updates.
func jittered(period time.Duration) time.Duration {
	return period + time.Duration(float64(period)*nodeStatusJitter)
}
