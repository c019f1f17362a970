package relist

import (
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

const (
	// Of what is remembered of events, each part has at most so many entries.
	maxTold    = 20000
	maxPending = 10000
	maxGone    = 1024
	// sweepEvery is how often what concerns nobody any more is forgotten.
	sweepEvery = time.Minute
)

// Trust is how far the runtime's events can be trusted on this node. It counts
// since plegd started.
type Trust struct {
	// Missed are the changes that a relist found and no event had told within two
	// periods. MissedSince is when the present run of them began, LastMissed when
	// its last was counted; those that a gap of the stream explains are in no run.
	Missed                  uint64
	MissedSince, LastMissed time.Time
	// NoStatus are events without the sandbox's status, which tell nothing; Known
	// those older than the last lists; Gone those of pods that are gone;
	// OutOfOrder those that were made before one of the same pod that came
	// earlier; Dropped those that came faster than they could be taken.
	NoStatus, Known, Gone, OutOfOrder, Dropped uint64
}

// missedRun is the longest time between two missed changes of one run, in the
// periods that are in force.
const missedRun = 10 * time.Minute

// countedLate is how long after its time a change is counted when plegd stood
// still in between: twice the time between two looks.
const countedLate = 2 * CacheTick

// gap is a time in which events may be lost because no stream was open, none had
// held yet, or plegd could not take them: what is missed then says nothing of the
// runtime.
type gap struct {
	ended time.Time // zero while it lasts
}

// trust compares what events tell with what relists find.
type trust struct {
	Trust

	patience time.Duration // how long an event may come after the relist

	// listening is since when events should tell of every change; zero while
	// they need not. What a relist finds counts once one that began after that
	// has shown where things stood.
	listening time.Time
	counts    bool
	// compared is when the last relist began whose lists were compared.
	compared time.Time
	// gap is the stream's last one. The subscription sets it, from outside of the
	// loop's goroutine: a relist that finds what was missed may come first.
	gap atomic.Pointer[gap]

	tells   map[string]toldState
	pending map[string]untoldChange
	order   map[string]int64 // when the newest event of a pod was made
	swept   time.Time
	gone    map[string]struct{}
	removed []string // the keys of gone, oldest first
}

// toldState is the furthest state that events have told of a container.
type toldState struct {
	uid  string
	rank int
	at   time.Time
}

// untoldChange is a change that no event has told yet.
type untoldChange struct {
	rank  int
	since time.Time // it came about after that
	until time.Time // an event may come until then
}

func newTrust(patience time.Duration) *trust {
	return &trust{
		patience: patience, tells: map[string]toldState{}, pending: map[string]untoldChange{}, order: map[string]int64{}, gone: map[string]struct{}{},
	}
}

func (t *trust) listen(on bool) {
	switch {
	case !on:
		t.listening, t.counts = time.Time{}, false
		clear(t.pending)
	case t.listening.IsZero():
		t.listening = time.Now()
	}
}

// interrupted begins a gap, resumed ends it.
func (t *trust) interrupted() { t.gap.Store(&gap{}) }

func (t *trust) resumed() {
	if g := t.gap.Load(); g != nil && g.ended.IsZero() {
		t.gap.Store(&gap{time.Now()})
	}
}

// lost says that plegd itself has just dropped an event: a gap of a moment.
func (t *trust) lost() {
	if g := t.gap.Load(); g == nil || !g.ended.IsZero() {
		t.gap.CompareAndSwap(g, &gap{time.Now()})
	}
}

// explained reports whether a change may be untold because there was a gap since
// it came about.
func (t *trust) explained(p untoldChange, now time.Time) bool {
	g := t.gap.Load()
	return g != nil && (g.ended.IsZero() || g.ended.After(p.since)) || now.Sub(p.until) > countedLate
}

func rankOf(kind cri.EventType) int {
	if kind == cri.EventDeleted {
		return deleted
	}
	state, _ := meaning(kind)
	return state.rank()
}

// told takes note of an event. inOrder is false when a newer one of the same pod
// came before it.
func (t *trust) told(e *cri.ContainerEvent) (inOrder bool) {
	rank := rankOf(e.Type)
	if was := t.tells[e.ContainerID]; rank > was.rank && (was.rank > 0 || len(t.tells) < maxTold) {
		t.tells[e.ContainerID] = toldState{e.PodUID, rank, e.Received}
	}
	if p, ok := t.pending[e.ContainerID]; ok && rank >= p.rank {
		delete(t.pending, e.ContainerID)
	}
	if e.Type == cri.EventDeleted && e.ContainerID == e.Sandbox.ID {
		t.remember(e.ContainerID)
	}
	inOrder = e.CreatedAt >= t.order[e.PodUID]
	if inOrder && (t.order[e.PodUID] != 0 || len(t.order) < maxTold) {
		t.order[e.PodUID] = e.CreatedAt
	}
	return inOrder
}

// remember keeps the id of a sandbox that is gone.
func (t *trust) remember(id string) {
	if _, ok := t.gone[id]; ok {
		return
	}
	if len(t.removed) == maxGone {
		delete(t.gone, t.removed[0])
		t.removed = t.removed[1:]
	}
	t.gone[id] = struct{}{}
	t.removed = append(t.removed, id)
}

// isGone reports whether an event has told that a sandbox was deleted.
func (t *trust) isGone(id string) bool {
	_, ok := t.gone[id]
	return ok
}

// relisted takes note of what a relist that began at start has found.
func (t *trust) relisted(start time.Time, todo []work, gen uint64) {
	if t.listening.IsZero() {
		return
	}
	if !t.counts {
		t.counts, t.compared = !start.Before(t.listening), start
		return
	}
	for _, w := range todo {
		for _, r := range w.pod.records {
			if r.old != r.cur && r.told != gen {
				t.found(r.id, r.cur)
			}
		}
	}
	t.compared = start
}

// hinted is the same of an early look at one pod.
func (t *trust) hinted(changed []entry) {
	for _, c := range changed {
		if t.counts {
			t.found(c.id, c.state)
		}
	}
}

func (t *trust) found(id string, state plegState) {
	rank := state.rank()
	if state == gone {
		rank = deleted
	}
	if t.tells[id].rank >= rank {
		return
	}
	if p, ok := t.pending[id]; ok && p.rank >= rank {
		return // found before, and not advanced
	}
	now := time.Now()
	p := untoldChange{rank, t.compared, now.Add(t.patience)}
	if len(t.pending) >= maxPending {
		t.missed(p, now)
		return
	}
	t.pending[id] = p
}

// expire counts what has not been told in time.
func (t *trust) expire(now time.Time) {
	for id, p := range t.pending {
		if now.Before(p.until) {
			continue
		}
		delete(t.pending, id)
		// It is known now: not to be found again.
		if was := t.tells[id]; was.rank < p.rank {
			t.tells[id] = toldState{was.uid, p.rank, now}
		}
		t.missed(p, now)
	}
}

func (t *trust) missed(p untoldChange, now time.Time) {
	t.Missed++
	if t.explained(p, now) {
		return
	}
	if t.LastMissed.IsZero() || now.Sub(t.LastMissed) > missedRun {
		t.MissedSince = now
	}
	t.LastMissed = now
}

// sweep forgets what was told of containers and pods that are gone.
func (t *trust) sweep(rs *records) {
	now := time.Now()
	if now.Sub(t.swept) < sweepEvery {
		return
	}
	t.swept = now
	for id, of := range t.tells {
		p := rs.pods[of.uid]
		if (p == nil || p.record(id) == nil) && now.Sub(of.at) > 2*t.patience+CacheTick {
			delete(t.tells, id)
		}
	}
	for uid := range t.order {
		if rs.pods[uid] == nil && now.UnixNano()-t.order[uid] > int64(time.Minute) {
			delete(t.order, uid)
		}
	}
}
