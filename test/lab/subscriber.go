//go:build e2e

package lab

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Subscriber is a client of a runtime's event stream, as the kubelet is: its stream has
// no deadline.
type Subscriber struct {
	mu     sync.Mutex
	events []RuntimeEvent
}

// RuntimeEvent is an event as a subscriber has it.
type RuntimeEvent struct {
	// ID is the container's or sandbox's, Type CREATED, STARTED, STOPPED or
	// DELETED.
	ID, Type string
}

// NewSubscriber subscribes to a runtime's events until the test ends.
func NewSubscriber(t testing.TB, socket string) *Subscriber {
	t.Helper()
	r := openCRI(t, socket)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := r.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	Must(t, err)
	// A runtime sends nothing before the first event: an answer to a later call shows
	// that it has taken the subscription.
	_, err = r.version(ctx)
	Must(t, err)
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
			s.events = append(s.events, RuntimeEvent{ID: e.GetContainerId(), Type: name})
			s.mu.Unlock()
		}
	}()
	return s
}

// Events are those that it has, in their order.
func (s *Subscriber) Events() []RuntimeEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]RuntimeEvent(nil), s.events...)
}

// Freeze stops a process that the lab has started, and returns when it has
// stopped.
func Freeze(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("lab: stop process %d: %v", pid, err)
	}
	Eventually(t, 5*time.Second, "the process is stopped", func() error {
		if state := processState(pid); state != "T" {
			return fmt.Errorf("process %d is in state %q", pid, state)
		}
		return nil
	})
}

// Thaw continues a stopped process.
func Thaw(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatalf("lab: continue process %d: %v", pid, err)
	}
}
