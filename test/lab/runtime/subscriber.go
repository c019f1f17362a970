//go:build e2e

package runtime

import (
	"context"
	"sync"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/test/lab"
)

// Subscriber is a client of a runtime's event stream, as the kubelet is: its stream has no deadline.
type Subscriber struct {
	mu     sync.Mutex
	events []Event
}

// Event is an event as a subscriber has it.
type Event struct {
	// ID is the container's or sandbox's, Type CREATED, STARTED, STOPPED or DELETED.
	ID, Type string
}

// NewSubscriber subscribes to a runtime's events until the test ends.
func NewSubscriber(t testing.TB, socket string) *Subscriber {
	t.Helper()
	r := NewCRI(t, socket, "")
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := r.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	lab.Must(t, err)
	// A runtime sends nothing before the first event: an answer to a later call shows
	// that it has taken the subscription.
	_, err = r.version(ctx)
	lab.Must(t, err)
	s := &Subscriber{}
	go func() {
		for {
			e, err := stream.Recv()
			if err != nil {
				return
			}
			name := e.GetContainerEventType().String()
			name = name[len("CONTAINER_") : len(name)-len("_EVENT")]
			s.mu.Lock()
			s.events = append(s.events, Event{ID: e.GetContainerId(), Type: name})
			s.mu.Unlock()
		}
	}()
	return s
}

// Events are those that it has, in their order.
func (s *Subscriber) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Event(nil), s.events...)
}
