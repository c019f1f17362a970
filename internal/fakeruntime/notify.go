package fakeruntime

import (
	"context"
	"fmt"
	"sync"
)

// notifier lets goroutines wait for a condition without polling.
type notifier struct {
	mu sync.Mutex
	ch chan struct{}
}

// notify wakes everybody who waits. It is called after the change.
func (n *notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}

func (n *notifier) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

// await returns once the condition holds or the context ends.
func (n *notifier) await(ctx context.Context, holds func() bool) error {
	for {
		changed := n.wait() // before the look, so that no change is missed
		if holds() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the fake runtime: %w", context.Cause(ctx))
		}
	}
}
