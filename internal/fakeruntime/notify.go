package fakeruntime

import (
	"context"
	"fmt"
	"sync"
)

// notifier lets goroutines wait for a condition without polling.
type notifier struct {
	mu      sync.Mutex
	changed chan struct{}
}

// notify is called after each change.
func (n *notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// await returns once the condition holds or the context ends.
func (n *notifier) await(ctx context.Context, holds func() bool) error {
	for {
		n.mu.Lock()
		if n.changed == nil {
			n.changed = make(chan struct{})
		}
		changed := n.changed // taken before the condition is read, so that no change is missed
		n.mu.Unlock()
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
