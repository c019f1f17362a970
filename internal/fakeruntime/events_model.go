package fakeruntime

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

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

// HeldUp returns how many events wait for a subscriber that does not read. On a
// runtime like containerd 2.x each of them is a pod's start or stop that does not
// return; the model's own changes are made all the same, so that a test decides
// what happens. It is 0 where nobody holds up anybody.
func (m *Model) HeldUp() int { return m.events.heldUp() }
