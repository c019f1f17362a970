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
// Ready condition: see NodeWriter.
type NodeStatus struct {
	// NotReady is true when the Ready condition in the API is False, for every possible
	// phase of the kubelet's tick. It changes only when that is certain.
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

// hang is a Version call that hangs: it began to between from and by.
type hang struct {
	hanging  bool
	from, by time.Time
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
	if !w.hungSince.IsZero() {
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
	return w.unanswered(s.InFlightSince, statusHangAfter)
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

// hangingList returns the start of the hanging list and the last answer before it: the
// last answer to any call if no call has been answered since, else the last answer to
// that list. A fault that holds up Version as well began between the two. Zero for no
// list.
func (w *view) hangingList() (last, start time.Time) {
	if in := w.f.Relist.InFlight; in != nil && in.Phase != PhaseInspect && in.PhaseStart.After(w.lastAnswer) {
		return w.lastAnswer, in.PhaseStart
	}
	if phase, start, ok := w.listUnanswered(listHangAfter); ok {
		return w.f.Calls[string(phase)].LastOK, start
	}
	return last, start
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

// nodeStatusPeriod is the effective period: facts of an older plegd hold none.
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
