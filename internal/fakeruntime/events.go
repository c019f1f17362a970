package fakeruntime

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventQueue hands each event to each subscriber from a buffer without limit, so
// a subscriber that does not read delays no other one. Without subscribers,
// events are lost.
type eventQueue struct {
	mu      sync.Mutex
	subs    []*subscriber
	changed notifier
}

type subscriber struct {
	queue []*cri.ContainerEventResponse
	ended bool
	wake  chan struct{} // holds a token after each change
}

func (q *eventQueue) subscribe() *subscriber {
	s := &subscriber{wake: make(chan struct{}, 1)}
	q.mu.Lock()
	q.subs = append(q.subs, s)
	q.mu.Unlock()
	q.changed.notify()
	return s
}

func (q *eventQueue) unsubscribe(s *subscriber) {
	q.mu.Lock()
	q.subs = slices.DeleteFunc(q.subs, func(o *subscriber) bool { return o == s })
	q.mu.Unlock()
	q.changed.notify()
}

func (q *eventQueue) subscribers() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.subs)
}

func (q *eventQueue) each(change func(*subscriber)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.subs {
		change(s)
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// next waits for a subscriber's next event; nil means that its stream has ended.
func (q *eventQueue) next(ctx context.Context, s *subscriber) (*cri.ContainerEventResponse, error) {
	for {
		q.mu.Lock()
		if len(s.queue) > 0 {
			e := s.queue[0]
			s.queue = s.queue[1:]
			q.mu.Unlock()
			return e, nil
		}
		ended := s.ended
		q.mu.Unlock()
		if ended {
			return nil, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// emit reports a change to the subscribers. Called with the model's lock held.
func (m *Model) emit(kind cri.ContainerEventType, id string, p *pod) {
	if m.events.subscribers() == 0 {
		return
	}
	e := &cri.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, CreatedAt: m.tick()}
	if n := len(p.sandboxes); n > 0 {
		s := p.sandboxes[n-1]
		e.PodSandboxStatus = sandboxStatus(s.entry, s.ips)
	}
	for _, c := range p.containers {
		e.ContainersStatuses = append(e.ContainersStatuses, c.status())
	}
	m.events.each(func(s *subscriber) { s.queue = append(s.queue, e) })
}

// EndEvents ends every event stream with EOF after its buffered events.
func (m *Model) EndEvents() { m.events.each(func(s *subscriber) { s.ended = true }) }

// Subscribers returns the number of open event streams.
func (m *Model) Subscribers() int { return m.events.subscribers() }

// AwaitSubscribers waits until there are at least n open event streams. A call of
// GetContainerEvents is counted before its stream is open; an event sent in
// between is lost, as with a real runtime.
func (m *Model) AwaitSubscribers(ctx context.Context, n int) error {
	return m.events.changed.await(ctx, func() bool { return m.events.subscribers() >= n })
}

func (s *service) GetContainerEvents(
	_ *cri.GetEventsRequest, stream grpc.ServerStreamingServer[cri.ContainerEventResponse],
) error {
	sub := s.model.events.subscribe()
	defer s.model.events.unsubscribe(sub)
	for {
		e, err := s.model.events.next(stream.Context(), sub)
		if err != nil {
			return status.FromContextError(err).Err()
		}
		if e == nil {
			return nil
		}
		if err := stream.Send(e); err != nil {
			return err
		}
	}
}
