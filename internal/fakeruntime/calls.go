package fakeruntime

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// CallStats counts the calls of one RPC that reached the server.
type CallStats struct {
	// Started counts the calls that arrived, Ended those of them that are over.
	Started, Ended int
	// InFlight is how many are under way, MaxInFlight the most there ever were.
	InFlight, MaxInFlight int
}

// callCounter counts calls by RPC name. The names are those of runtime.v1, so
// the map is bounded.
type callCounter struct {
	mu     sync.Mutex
	byRPC  map[string]*CallStats
	writes []string
	tell   notifier
}

func (c *callCounter) begin(rpc string) (end func()) {
	c.mu.Lock()
	if c.byRPC == nil {
		c.byRPC = make(map[string]*CallStats)
	}
	s, ok := c.byRPC[rpc]
	if !ok {
		s = new(CallStats)
		c.byRPC[rpc] = s
	}
	s.Started++
	s.InFlight++
	s.MaxInFlight = max(s.MaxInFlight, s.InFlight)
	c.mu.Unlock()
	c.tell.notify()
	return func() {
		c.mu.Lock()
		s.Ended++
		s.InFlight--
		c.mu.Unlock()
		c.tell.notify()
	}
}

func (c *callCounter) wrote(rpc string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, rpc)
}

func (c *callCounter) get(rpc string) CallStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.byRPC[rpc]; ok {
		return *s
	}
	return CallStats{}
}

// Calls returns the counts of one RPC by its name, as in Calls("ListContainers").
func (r *Runtime) Calls(rpc string) CallStats { return r.calls.get(rpc) }

// AllCalls returns the counts of every RPC that was called.
func (r *Runtime) AllCalls() map[string]CallStats {
	r.calls.mu.Lock()
	defer r.calls.mu.Unlock()
	out := make(map[string]CallStats, len(r.calls.byRPC))
	for rpc, s := range r.calls.byRPC {
		out[rpc] = *s
	}
	return out
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
	err := r.calls.tell.await(ctx, func() bool { return r.calls.get(rpc).Started >= n })
	if err != nil {
		return fmt.Errorf("%d of %d calls of %s: %w", r.calls.get(rpc).Started, n, rpc, err)
	}
	return nil
}
