package health

import (
	"slices"
	"time"
)

// RelistRecord is one of plegd's relists as the modelled kubelet replays it.
type RelistRecord struct {
	// Seq numbers the relists; a later record with the same number replaces an
	// earlier one.
	Seq   uint64
	Start time.Time
	// Listed is the end of both lists, zero while they are under way. OK tells
	// whether both succeeded.
	Listed time.Time
	OK     bool
	// Inspections are the pods inspected, or to be inspected, in this relist.
	Inspections []InspectionRecord
	// Again are inspections that the kubelet has no part in: they show how the
	// runtime answers by then.
	Again []InspectionRecord
	// Complete is true when the relist has ended: no further inspection will come.
	Complete bool
	// Period is what the kubelet waits after it, 0 for what it waited before.
	// Early is true when the kubelet, too, would not have waited for the end of
	// its period.
	Period time.Duration
	Early  bool
}

// InspectionRecord is the inspection of one pod, as far as known.
type InspectionRecord struct {
	UID string
	// Done is true when it has ended, at End, after Spent (its calls one after
	// another).
	Done  bool
	End   time.Time
	Spent time.Duration
	// Cut is true when plegd's own deadline ended it: the kubelet's call, with
	// its longer one, may still wait. CutCall is how long the last call had
	// taken by then.
	Cut     bool
	CutCall time.Duration
}

// Model is the modelled kubelet's PLEG. plegd inspects pods in parallel and
// with short deadlines, the kubelet one after the other and with the full RPC
// timeout. So the calls that plegd measured are replayed one after another as
// the kubelet would have made them: its next relist starts a period after the
// modelled end of the last, with the calls that plegd's relist made at that time.
//
// A Model belongs to one goroutine.
type Model struct {
	period, rpcTimeout time.Duration

	lastSeen time.Time
	// restarted is the start of a kubelet that restarted; zero for none.
	restarted time.Time
	next      time.Time      // the earliest start of the next modelled relist
	ended     time.Time      // the end of the last one
	waiting   []RelistRecord // plegd's relists not yet replayed or skipped, in order
	behind    map[string]InspectionRecord
	order     []string // the keys of behind, oldest first
	current   *replay
	lastSeq   uint64
}

// replay is a modelled relist under way.
type replay struct {
	start  time.Time
	record RelistRecord
	listed bool
	at     time.Time // where the model stands: the start of what is at items[0]
	begun  time.Time // the end of the lists
	items  []InspectionRecord
	// taken counts the inspections of record that have been moved to items.
	taken int
	// answered is when a pod's inspection last ended without being cut.
	answered map[string]InspectionRecord
}

// maxWaiting bounds the records that a model keeps for a runtime so slow that
// the kubelet falls behind: beyond it the oldest are merged.
const maxWaiting = 64

// NewModel returns a kubelet that has yet to relist. lastSeen is what it saw
// before a restart of plegd, zero for nothing.
func NewModel(period, rpcTimeout time.Duration, lastSeen time.Time) *Model {
	return &Model{period: period, rpcTimeout: rpcTimeout, lastSeen: lastSeen, behind: map[string]InspectionRecord{}}
}

// SetRPCTimeout sets the kubelet's limit for one call.
func (m *Model) SetRPCTimeout(d time.Duration) { m.rpcTimeout = d }

// Restart begins again with a kubelet that started at t and has yet to relist. A
// relist of plegd that is under way is its first one as well.
func (m *Model) Restart(t time.Time) {
	again := NewModel(m.period, m.rpcTimeout, time.Time{})
	again.next, again.ended, again.restarted = t, t, t
	for _, r := range m.waiting {
		if !r.Start.Before(t) {
			again.waiting = append(again.waiting, r)
		}
	}
	if c := m.current; len(again.waiting) == 0 && c != nil && !c.listed {
		again.waiting = append(again.waiting, c.record)
	}
	*m = *again
}

// Observe takes over one of plegd's relists: when it starts, as it moves on, when
// it has ended. Records come in order of Seq.
func (m *Model) Observe(r RelistRecord) {
	if m.current != nil {
		m.current.hear(r)
		if m.current.record.Seq == r.Seq {
			m.current.record = r
			return
		}
	}
	if n := len(m.waiting); n > 0 && m.waiting[n-1].Seq == r.Seq {
		m.waiting[n-1] = r
		return
	}
	if r.Seq <= m.lastSeq {
		return // replayed already
	}
	if n := len(m.waiting); n > 0 && r.Seq < m.waiting[n-1].Seq {
		m.postponeAll(r) // observed late: a later one is replayed in its place
		return
	}
	if len(m.waiting) == maxWaiting {
		m.skip(m.waiting[0])
		m.waiting = append(m.waiting[:0], m.waiting[1:]...)
	}
	m.waiting = append(m.waiting, r)
}

// skip passes over a relist that the kubelet had no time for: the pods that it
// inspected are inspected in its next one.
func (m *Model) skip(r RelistRecord) {
	m.lastSeq = r.Seq
	m.postponeAll(r)
	m.refresh(r)
}

// refresh takes over how pods that are still to be inspected were answered when
// they were asked for again.
func (m *Model) refresh(r RelistRecord) {
	for _, i := range r.Again {
		if _, known := m.behind[i.UID]; known && i.Done && !i.Cut {
			m.behind[i.UID] = i
		}
	}
}

func (m *Model) postponeAll(r RelistRecord) {
	for _, i := range r.Inspections {
		if i.Done {
			m.postpone(i)
		}
	}
}

// postpone leaves an inspection to the next modelled relist. What a later
// inspection of the same pod took replaces what an earlier one did.
func (m *Model) postpone(i InspectionRecord) {
	if _, known := m.behind[i.UID]; !known {
		m.order = append(m.order, i.UID)
	}
	m.behind[i.UID] = i
}

// At brings the model to now and returns where it stands.
func (m *Model) At(now time.Time) Modelled {
	for m.step(now) {
	}
	out := Modelled{LastSeen: m.lastSeen}
	if c := m.current; c != nil {
		out.BusySince, out.InspectingSince = c.start, c.begun
		out.Inspecting = len(c.items) + len(c.record.Inspections) - c.taken
		if c.listed {
			out.EndsBy = c.endsBy(m.rpcTimeout, now)
		}
	}
	return out
}

// step makes the next thing happen that happens by now; false when nothing does.
func (m *Model) step(now time.Time) bool {
	if m.current == nil {
		return m.begin(now)
	}
	c := m.current
	if !c.listed {
		if c.record.Listed.IsZero() {
			return false // a call under way
		}
		end := c.start.Add(c.record.Listed.Sub(c.record.Start))
		if c.record.OK && c.start.Equal(m.restarted) && c.record.Listed.Before(end) {
			end = laterOf(c.start, c.record.Listed) // lists that hung are released together
		}
		if at, ok := m.listedSince(c.start); ok && m.firstAfterRestart() && at.Before(end) {
			end = at // as are those that plegd called earlier than the kubelet
		}
		if end.After(now) {
			return false
		}
		if !c.record.OK {
			m.finish(end)
			return true
		}
		m.lastSeen, c.at, c.begun, c.listed = c.start, end, end, true
		// A pod that this relist inspects itself is not inspected twice.
		c.items = slices.DeleteFunc(c.items, func(i InspectionRecord) bool {
			return slices.ContainsFunc(c.record.Inspections, func(own InspectionRecord) bool { return own.UID == i.UID })
		})
		return true
	}
	if len(c.items) == 0 {
		if c.taken < len(c.record.Inspections) {
			i := c.record.Inspections[c.taken]
			if !i.Done {
				return false
			}
			c.items = append(c.items, i)
			c.taken++
			return true
		}
		if !c.record.Complete {
			return false
		}
		m.finish(c.at)
		return true
	}
	end, known := c.endOf(c.items[0], m.rpcTimeout, now)
	if !known || end.After(now) {
		return false
	}
	c.at = end
	c.items = c.items[1:]
	return true
}

// firstAfterRestart reports whether the kubelet has restarted and has yet to
// relist.
func (m *Model) firstAfterRestart() bool { return !m.restarted.IsZero() && m.lastSeen.IsZero() }

// listedSince returns when lists that plegd began at t or later were answered: a
// runtime that answers new ones has answered those from before.
func (m *Model) listedSince(t time.Time) (time.Time, bool) {
	for i := range m.waiting {
		if r := &m.waiting[i]; r.OK && !r.Listed.IsZero() && !r.Start.Before(t) {
			return r.Listed, true
		}
	}
	return time.Time{}, false
}

// due is when the next modelled relist may start: a period after the last one
// ended, or as soon as there is one that waits for no period.
func (m *Model) due() time.Time {
	for i := range m.waiting {
		r := &m.waiting[i]
		if !r.Early || !r.Start.Before(m.next) {
			continue
		}
		if r.Start.After(m.ended) {
			return r.Start
		}
		return m.ended
	}
	return m.next
}

// begin starts the next modelled relist: a replay of the last relist that plegd
// had started by then, or else of the next that it starts.
func (m *Model) begin(now time.Time) bool {
	next := m.due()
	if len(m.waiting) == 0 || next.After(now) {
		return false
	}
	pick := 0
	for pick+1 < len(m.waiting) && !m.waiting[pick+1].Start.After(next) {
		pick++
	}
	r := m.waiting[pick]
	for _, s := range m.waiting[:pick] {
		m.skip(s)
	}
	later := m.waiting[pick+1:]
	m.refresh(r)
	c := &replay{start: laterOf(r.Start, next), record: r, answered: map[string]InspectionRecord{}}
	for _, uid := range m.order {
		c.items = append(c.items, m.behind[uid])
	}
	m.behind, m.order = map[string]InspectionRecord{}, nil
	for _, l := range later {
		c.hear(l)
	}
	m.waiting = append([]RelistRecord(nil), later...)
	m.lastSeq = r.Seq
	m.current = c
	return true
}

// finish ends the modelled relist at end.
func (m *Model) finish(end time.Time) {
	c := m.current
	m.current = nil
	if c.record.Period > 0 {
		m.period = c.record.Period
	}
	m.ended, m.next = end, end.Add(m.period)
	for _, i := range c.items { // lists that failed: still to be inspected
		m.postpone(i)
	}
}

// hear takes over how pods were answered in one of plegd's relists that is not
// before the one replayed.
func (c *replay) hear(r RelistRecord) {
	for _, group := range [][]InspectionRecord{r.Inspections, r.Again} {
		for _, i := range group {
			if !i.Done || i.Cut {
				continue
			}
			if _, known := c.answered[i.UID]; !known || r.Seq > c.record.Seq {
				c.answered[i.UID] = i
			}
		}
	}
}

// endOf returns when the modelled inspection that begins at c.at ends; known is
// false when that is not yet known.
func (c *replay) endOf(i InspectionRecord, rpcTimeout time.Duration, now time.Time) (end time.Time, known bool) {
	// A later inspection of the same pod that was answered shows when the
	// runtime was able to answer again, and how long that took.
	a, answered := c.answered[i.UID]
	answered = answered && a.End.After(i.End)
	if answered && !c.at.Before(a.End) {
		return c.at.Add(a.Spent), true
	}
	if !i.Cut {
		end = c.at.Add(i.Spent)
		if answered && a.End.Before(end) {
			end = laterOf(a.End, c.at.Add(a.Spent))
		}
		return end, true
	}
	latest := c.at.Add(i.Spent - i.CutCall + rpcTimeout)
	if !answered {
		return latest, !latest.After(now)
	}
	if a.End.Before(latest) {
		// It was released when the later inspection was answered, and takes at
		// least as long as that one.
		latest = laterOf(a.End, c.at.Add(a.Spent))
	}
	return latest, true
}

// endsBy is the latest end of the modelled relist under way: every inspection
// that is not known to end earlier takes the whole RPC timeout.
func (c *replay) endsBy(rpcTimeout time.Duration, now time.Time) time.Time {
	rest := *c
	for _, i := range slices.Concat(c.items, c.record.Inspections[min(c.taken, len(c.record.Inspections)):]) {
		if !i.Done {
			rest.at = rest.at.Add(rpcTimeout)
			continue
		}
		rest.at, _ = rest.endOf(i, rpcTimeout, now)
	}
	return laterOf(rest.at, now)
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
