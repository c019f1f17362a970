package relist

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
)

// panics is a runtime whose calls panic beside the relists.
type panics struct {
	*world
	l *Loop
}

func (p panics) ListContainers(ctx context.Context) ([]*cri.Entry, error) {
	if p.l.Snapshot().Relist.Phase == facts.PhaseInspect {
		panic("a list beside the relists")
	}
	return p.world.ListContainers(ctx)
}

// TestPanicBeside: a panic in a list beside the relists ends neither the daemon nor
// the lists that follow.
func TestPanicBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(3)
		p := &panics{world: w}
		p.l = New(p, time.Second, newWatcher())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.l.Run(ctx) }()
		time.Sleep(5500 * time.Millisecond)
		w.hang("pod001")
		w.set(func() { w.pods["pod001"].state = cri.StateExited })
		time.Sleep(10 * time.Second)
		w.release("pod001")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s := p.l.Snapshot(); time.Since(s.LastSeen) > 2*time.Second || len(p.l.besideToken) > 0 {
			t.Errorf("last seen %s ago, %d lists beside under way", time.Since(s.LastSeen), len(p.l.besideToken))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
