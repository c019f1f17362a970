package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/relist"
)

// ownRelist is plegd's own relist: its connection, its reader, its loop. The loop
// runs as in the daemon; only its period is taken away, and each relist waits
// until the bench asks for it.
type ownRelist struct {
	stop func()
	loop *relist.Loop
	gate chan struct{}
	seen atomic.Int64
	wire *callSizes
}

func newOwnRelist(socket string) (*ownRelist, error) {
	p := &ownRelist{gate: make(chan struct{}), wire: &callSizes{}}
	client, err := cri.New(cri.Options{Path: socket, Observer: p.wire})
	if err != nil {
		return nil, err
	}
	p.loop = relist.New(gated{client, p.gate}, relist.Config{Period: time.Nanosecond, InspectConcurrency: 16, InspectTimeout: 10 * time.Second}, p)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = p.loop.Run(ctx) })
	running.Go(func() {
		for { // somebody reads them, as in the daemon
			select {
			case <-p.loop.Events():
			case <-ctx.Done():
				return
			}
		}
	})
	p.stop = func() {
		cancel()
		running.Wait()
		_ = client.Close()
	}
	return p, nil
}

func (p *ownRelist) relist(ctx context.Context) error {
	p.gate <- struct{}{}
	select {
	case r := <-p.loop.Results():
		if r.Err != nil {
			return r.Err
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *ownRelist) bytes() int  { return int(p.wire.sandboxes.Load() + p.wire.containers.Load()) }
func (p *ownRelist) pods() int   { return p.loop.Snapshot().RunningPods }
func (p *ownRelist) events() int { return int(p.seen.Load()) }
func (p *ownRelist) close()      { p.stop() }

// EventGenerated counts; the other methods make p a relist.Observer.
func (p *ownRelist) EventGenerated(t relist.EventType) {
	if t != relist.PodSync {
		p.seen.Add(1)
	}
}

// RelistDone is not needed here.
func (p *ownRelist) RelistDone(time.Duration, time.Duration, bool) {}

// RelistInterval is not needed here.
func (p *ownRelist) RelistInterval(time.Duration) {}

// EventDiscarded is not needed here.
func (p *ownRelist) EventDiscarded() {}

// InspectionDone is not needed here.
func (p *ownRelist) InspectionDone(bool) {}

// gated is the runtime, but the first call of a relist waits.
type gated struct {
	*cri.Client
	gate chan struct{}
}

func (g gated) ListPodSandbox(ctx context.Context) ([]*cri.Sandbox, error) {
	select {
	case <-g.gate:
		return g.Client.ListPodSandbox(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// callSizes notes the sizes of the last two lists.
type callSizes struct{ sandboxes, containers atomic.Int64 }

// CallDone observes every call.
func (s *callSizes) CallDone(c cri.Call) {
	switch c.Operation {
	case cri.OpListPodSandbox:
		s.sandboxes.Store(int64(c.Bytes))
	case cri.OpListContainers:
		s.containers.Store(int64(c.Bytes))
	}
}
