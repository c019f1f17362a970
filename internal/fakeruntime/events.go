package fakeruntime

import (
	"context"
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What containerd's event queues hold.
const (
	// subscriberQueue is each subscriber's in containerd 2.x (internal/eventq).
	subscriberQueue = 100
	// keptFor is how long containerd 2.x keeps events for the first subscriber.
	keptFor = 5 * time.Minute
)

// eventQueue takes the events of a runtime to its subscribers, in the way of the
// runtime that it is like. It has no goroutine of its own: every call that sends, reads,
// comes or goes moves events on as far as they can go.
type eventQueue struct {
	mu   sync.Mutex
	like Like
	subs []*subscriber // in the order in which they came
	lost bool
	// kept are events for the first subscriber.
	kept []keptEvent
	// held are events that wait for a subscriber to read. In containerd 2.x each
	// of them is a call that does not return.
	held []*runtimeapi.ContainerEventResponse
	tell notifier
}

type keptEvent struct {
	event *runtimeapi.ContainerEventResponse
	at    time.Time
}

type subscriber struct {
	queue []*runtimeapi.ContainerEventResponse
	ended bool
	wake  chan struct{} // holds one token while there is something to look at
}

func (q *eventQueue) subscribe() *subscriber {
	s := &subscriber{wake: make(chan struct{}, 1)}
	q.mu.Lock()
	if q.like == LikeContainerd2 && len(q.subs) == 0 {
		q.forget()
		for _, k := range q.kept {
			q.held = append(q.held, k.event)
		}
		q.kept = nil
	}
	q.subs = append(q.subs, s)
	q.move()
	q.mu.Unlock()
	q.tell.notify()
	return s
}

func (q *eventQueue) unsubscribe(s *subscriber) {
	q.mu.Lock()
	q.subs = slices.DeleteFunc(q.subs, func(o *subscriber) bool { return o == s })
	q.move()
	q.mu.Unlock()
	q.tell.notify()
}

func (q *eventQueue) subscribers() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.subs)
}

func (q *eventQueue) heldUp() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.held)
}

// wanted reports whether anybody would see an event, now or later.
func (q *eventQueue) wanted() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.lost && (q.like == LikeContainerd2 || len(q.subs) > 0)
}

func (q *eventQueue) send(e *runtimeapi.ContainerEventResponse) {
	q.mu.Lock()
	if q.like == LikeContainerd2 && len(q.subs) == 0 {
		q.forget()
		q.kept = append(q.kept, keptEvent{event: e, at: time.Now()})
	} else {
		q.held = append(q.held, e)
		q.move()
	}
	q.mu.Unlock()
	q.tell.notify()
}

// forget drops what was kept for the first subscriber too long.
func (q *eventQueue) forget() {
	n := 0
	for n < len(q.kept) && time.Since(q.kept[n].at) > keptFor {
		n++
	}
	q.kept = q.kept[n:]
}

// move hands the events that are held up to every subscriber, as far as all of
// them have room.
func (q *eventQueue) move() {
	for len(q.held) > 0 {
		for _, s := range q.subs {
			if q.like == LikeContainerd2 && len(s.queue) >= subscriberQueue {
				return
			}
		}
		for _, s := range q.subs {
			s.push(q.held[0])
		}
		q.held = q.held[1:]
	}
}

func (q *eventQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.subs {
		s.ended = true
		s.rouse()
	}
}

func (q *eventQueue) become(l Like) {
	q.end()
	q.mu.Lock()
	q.like, q.kept, q.held = l, nil, nil
	q.mu.Unlock()
	q.tell.notify()
}

func (q *eventQueue) is() Like {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.like
}

// push and rouse are called with the queue's lock held.
func (s *subscriber) push(e *runtimeapi.ContainerEventResponse) {
	s.queue = append(s.queue, e)
	s.rouse()
}

func (s *subscriber) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// next waits for a subscriber's next event, nil when its stream has ended.
func (q *eventQueue) next(ctx context.Context, s *subscriber) (*runtimeapi.ContainerEventResponse, error) {
	for {
		e, ended := q.take(s)
		if e != nil || ended {
			return e, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take takes a single event: while it is on its way to a client that does
// not read, the next ones stay in the queue.
func (q *eventQueue) take(s *subscriber) (e *runtimeapi.ContainerEventResponse, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(s.queue) > 0:
		e, s.queue = s.queue[0], s.queue[1:]
		q.move()
		q.tell.notify()
	case s.ended:
		ended = true
	}
	return e, ended
}
