package fakeruntime

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// CallStats counts the calls of one RPC that reached the server.
type CallStats struct {
	// Started counts the calls that arrived.
	Started int
	// InFlight is how many are under way, MaxInFlight the most there ever were.
	InFlight, MaxInFlight int
}

// callCounter counts calls by RPC name. The names are those of runtime.v1, so
// the map is bounded.
type callCounter struct {
	mu      sync.Mutex
	byRPC   map[string]CallStats
	writes  []string
	changed notifier
}

func (c *callCounter) begin(rpc string) (end func()) {
	c.update(rpc, func(s *CallStats) {
		s.Started++
		s.InFlight++
		s.MaxInFlight = max(s.MaxInFlight, s.InFlight)
	})
	return func() { c.update(rpc, func(s *CallStats) { s.InFlight-- }) }
}

func (c *callCounter) update(rpc string, change func(*CallStats)) {
	c.mu.Lock()
	if c.byRPC == nil {
		c.byRPC = make(map[string]CallStats)
	}
	s := c.byRPC[rpc]
	change(&s)
	c.byRPC[rpc] = s
	c.mu.Unlock()
	c.changed.notify()
}

func (c *callCounter) wrote(rpc string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, rpc)
}

// Calls returns the counts of one RPC by its name, as in Calls("ListContainers").
func (r *Runtime) Calls(rpc string) CallStats { return r.AllCalls()[rpc] }

// AllCalls returns the counts of every RPC that was called.
func (r *Runtime) AllCalls() map[string]CallStats {
	r.calls.mu.Lock()
	defer r.calls.mu.Unlock()
	return maps.Clone(r.calls.byRPC)
}

// WriteCalls returns the names of the calls that would have changed a real
// runtime, in their order. All of them were refused with PermissionDenied. A
// test of a read-only client asserts that there are none.
func (r *Runtime) WriteCalls() []string {
	r.calls.mu.Lock()
	defer r.calls.mu.Unlock()
	return slices.Clone(r.calls.writes)
}

// AwaitCalls waits until at least n calls of the RPC have arrived since New.
func (r *Runtime) AwaitCalls(ctx context.Context, rpc string, n int) error {
	err := r.calls.changed.await(ctx, func() bool { return r.Calls(rpc).Started >= n })
	if err != nil {
		return fmt.Errorf("%d of %d calls of %s: %w", r.Calls(rpc).Started, n, rpc, err)
	}
	return nil
}
