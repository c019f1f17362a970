package relist

import (
	"time"

	"github.com/plegd/plegd/internal/cri"
)

// Tell hands over an event of the runtime's. It never blocks: an event that does
// not fit is dropped and counted, and a relist is asked for in its place.
func (l *Loop) Tell(e *cri.ContainerEvent) {
	if l.queued.Add(int64(e.Bytes)) <= maxQueued {
		select {
		case l.in <- e:
			return
		default:
		}
	}
	l.queued.Add(-int64(e.Bytes))
	l.drop()
}

// drop counts an event that is not taken. What it told a relist finds instead.
func (l *Loop) drop() {
	l.dropped.Add(1)
	l.trust.lost()
	l.CatchUp()
}

const (
	// maxQueued is how much memory the events may take that have yet to be taken
	// over.
	maxQueued = 8 << 20
	// maxPods is how many pods events may make known before a list does.
	maxPods = 10000
)

// Waiting is how many events wait for a reader, and how many fit. While the loop
// relies on events the kubelet calls its PLEG unhealthy when they are as many.
func (l *Loop) Waiting() (events, capacity int) { return len(l.events), cap(l.events) }

// event takes over one event of the runtime's.
func (l *Loop) event(e *cri.ContainerEvent) {
	l.queued.Add(-int64(e.Bytes))
	defer l.noteAndPublish()
	t := &l.trust.Trust
	if !e.HasSandbox {
		t.NoStatus++
		return
	}
	at := happened(e)
	switch inOrder := l.trust.told(e); {
	case l.now.LastSeen.After(at):
		t.Known++ // it is older than the last lists
		return
	case !inOrder:
		t.OutOfOrder++
	}
	switch {
	case l.now.Evented:
		l.apply(e, at)
	case l.cfg.Mode == Hint && e.Type != cri.EventCreated: // as the generic loop, which says nothing of a creation
		l.hints.add(e.PodUID)
	}
}

// happened is when the runtime made an event, by this process's clock: a step of
// the wall clock in between moves it no more than it moves the moment at which
// the event came.
func happened(e *cri.ContainerEvent) time.Time {
	return e.Received.Add(-time.Duration(e.Received.UnixNano() - e.CreatedAt))
}

// apply does what the kubelet's evented PLEG does with an event: status and
// counts from it, and the pod lifecycle events that it stands for.
func (l *Loop) apply(e *cri.ContainerEvent, at time.Time) {
	sandbox := e.ContainerID == e.Sandbox.ID
	name := ""
	for _, c := range e.Containers {
		if c.ID == e.ContainerID {
			name = c.Name
		}
	}
	state, types := meaning(e.Type)
	if l.records.pods[e.PodUID] == nil && len(l.records.ahead) >= maxPods {
		l.drop()
		return
	}
	before := l.records.tell(e, name, state, l.during())

	status := &PodStatus{
		UID: e.PodUID, Namespace: e.PodNamespace, Name: e.PodName, IPs: e.Sandbox.IPs,
		Sandboxes: []*cri.SandboxStatus{e.Sandbox}, Containers: e.Containers, At: at,
	}
	switch old := l.cache.Get(e.PodUID); {
	case e.Type == cri.EventDeleted && sandbox:
		l.recount(e.PodUID, nil)
		l.cache.remove(e.PodUID)
	case old == nil && e.Type == cri.EventDeleted, old != nil && old.At.After(at):
		// of a pod that is gone too, or older than what is known
	case old == nil && l.trust.isGone(e.Sandbox.ID):
		l.trust.Gone++
	default:
		l.recount(e.PodUID, status)
		l.cache.set(status)
	}
	if before >= rankOf(e.Type) {
		return // delivered already
	}
	for _, t := range types {
		l.deliver(Event{
			Type: t, PodUID: e.PodUID, PodName: e.PodName, PodNamespace: e.PodNamespace,
			ID: e.ContainerID, Sandbox: sandbox, Name: name,
		}, status)
	}
}

// meaning is the state that an event tells, and what the kubelet makes of it
// (evented.go, processCRIEvent): a creation only updates the status, and a
// deletion is both.
func meaning(t cri.EventType) (plegState, []EventType) {
	switch t {
	case cri.EventStarted:
		return running, []EventType{ContainerStarted}
	case cri.EventStopped:
		return exited, []EventType{ContainerDied}
	case cri.EventDeleted:
		return gone, []EventType{ContainerDied, ContainerRemoved}
	default:
		return unknown, nil
	}
}

// during is the relist whose lists may or may not hold what is told now.
func (l *Loop) during() uint64 {
	switch {
	case l.listing:
		return l.records.gen + 1
	case l.inspects:
		return l.records.gen
	default:
		return 0
	}
}

// await makes a call of a relist, and continues to take events meanwhile where the
// loop relies on them: a list that hangs holds up no event.
func (l *Loop) await(call func()) {
	if l.cfg.Mode != Evented {
		call()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	awaitFrom(l, done)
}

// awaitJob is the same for the next inspection to end.
func (l *Loop) awaitJob(done <-chan *job) (j *job, ok bool) {
	if l.cfg.Mode != Evented {
		j, ok = <-done
		return j, ok
	}
	return awaitFrom(l, done)
}

// awaitFrom receives from a channel, and takes events meanwhile.
func awaitFrom[T any](l *Loop, from <-chan T) (v T, ok bool) {
	for {
		select {
		case v, ok = <-from:
			return v, ok
		case e := <-l.in:
			l.event(e)
		case now := <-l.ticks:
			l.tick(now)
		}
	}
}

// tick moves the cache's clock while the loop relies on events, so that whoever
// waits for a newer status gets on with the one there is.
func (l *Loop) tick(now time.Time) {
	if l.now.Evented {
		l.cache.setObserved(now)
	}
	l.noteTrust(now)
	l.publish()
}

// noteTrust brings what the snapshot says of events up to now.
func (l *Loop) noteTrust(now time.Time) {
	if len(l.in) == 0 { // an event that has come and was not taken yet may tell what is pending
		l.trust.expire(now)
	}
	l.now.Trust = l.trust.Trust
	l.now.Trust.Dropped = l.dropped.Load()
}

func (l *Loop) noteAndPublish() {
	l.noteTrust(time.Now())
	l.publish()
}

// sweep forgets the statuses of pods that neither the lists nor an event since
// know.
func (l *Loop) sweep() {
	l.trust.sweep(l.records)
	if l.now.Evented {
		l.cache.keep(func(uid string) bool { return l.records.pods[uid] != nil })
	}
}
