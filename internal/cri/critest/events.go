package critest

import (
	"context"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// broadcaster hands every event to every subscriber, as containerd 2.x does. A
// subscriber's buffer is its own and has no limit, so one that does not read
// holds up nobody.
type broadcaster struct {
	mu   sync.Mutex
	subs map[*subscriber]struct{}
	lost bool
	tell notifier
}

type subscriber struct {
	mu    sync.Mutex
	queue []*runtimeapi.ContainerEventResponse
	ended bool
	wake  chan struct{} // holds one token while there is something to look at
}

func (b *broadcaster) subscribe() *subscriber {
	s := &subscriber{wake: make(chan struct{}, 1)}
	b.mu.Lock()
	if b.subs == nil {
		b.subs = make(map[*subscriber]struct{})
	}
	b.subs[s] = struct{}{}
	b.mu.Unlock()
	b.tell.notify()
	return s
}

func (b *broadcaster) unsubscribe(s *subscriber) {
	b.mu.Lock()
	delete(b.subs, s)
	b.mu.Unlock()
	b.tell.notify()
}

func (b *broadcaster) subscribers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.subs)
}

// wanted tells whether anybody would see an event.
func (b *broadcaster) wanted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.subs) > 0 && !b.lost
}

func (b *broadcaster) send(e *runtimeapi.ContainerEventResponse) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subs {
		s.push(e, false)
	}
}

func (b *broadcaster) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subs {
		s.push(nil, true)
	}
}

func (s *subscriber) push(e *runtimeapi.ContainerEventResponse, end bool) {
	s.mu.Lock()
	if e != nil {
		s.queue = append(s.queue, e)
	}
	s.ended = s.ended || end
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// next returns the events that wait, at least one unless the stream has ended.
func (s *subscriber) next(ctx context.Context) (events []*runtimeapi.ContainerEventResponse, ended bool, err error) {
	for {
		s.mu.Lock()
		events, s.queue = s.queue, nil
		ended = s.ended
		s.mu.Unlock()
		if len(events) > 0 || ended {
			return events, ended, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// emit tells the subscribers of a change. Called with the model's lock held.
func (m *Model) emit(kind runtimeapi.ContainerEventType, id string, p *pod) {
	if !m.events.wanted() {
		return
	}
	e := &runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, CreatedAt: m.tick()}
	if n := len(p.sandboxes); n > 0 {
		s := p.sandboxes[n-1]
		e.PodSandboxStatus = sandboxStatus(s.entry, s.ips)
	}
	for _, c := range p.containers {
		e.ContainersStatuses = append(e.ContainersStatuses, c.status())
	}
	m.events.send(e)
}

// SendEvent sends one event to every subscriber as it is, true or not. It must
// not be changed afterwards.
func (m *Model) SendEvent(e *runtimeapi.ContainerEventResponse) { m.events.send(e) }

// LoseEvents makes changes of the model go unannounced (true) or announced
// again (false).
func (m *Model) LoseEvents(lose bool) {
	m.events.mu.Lock()
	defer m.events.mu.Unlock()
	m.events.lost = lose
}

// EndEvents ends every event stream with EOF, what is buffered first.
func (m *Model) EndEvents() { m.events.end() }

// Subscribers returns the number of open event streams.
func (m *Model) Subscribers() int { return m.events.subscribers() }

// AwaitSubscribers waits until there are at least n open event streams. A call
// of GetContainerEvents is seen before its stream is open; an event sent in
// between is lost, as it is with a real runtime.
func (m *Model) AwaitSubscribers(ctx context.Context, n int) error {
	return m.events.tell.await(ctx, func() bool { return m.events.subscribers() >= n })
}
