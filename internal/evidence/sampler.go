package evidence

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// tick is the mean time between two ticks while no alert is on.
const tick = time.Second

// Sampler samples the sources, each when it is due, until it is stopped.
type Sampler struct {
	sources []Source
	notify  func() // called when a source fails or asks to be sampled again at once, and when that ends
	alert   atomic.Bool
	wake    chan struct{}
	jitter  func(least, most time.Duration) time.Duration
}

func newSampler(notify func(), sources ...Source) *Sampler {
	return &Sampler{sources: sources, notify: notify, wake: make(chan struct{}, 1), jitter: jitter}
}

func jitter(least, most time.Duration) time.Duration {
	return least + rand.N(most-least) //nolint:gosec // no secret
}

// Sources returns the sources.
func (s *Sampler) Sources() []Source { return s.sources }

// Alert sets whether something may be wrong. From then on each source is sampled
// every Every ticks, and no longer every Calm.
func (s *Sampler) Alert(on bool) {
	if !s.alert.Swap(on) && on {
		wake(s.wake)
	}
}

// Run samples until ctx ends, and then returns nil. It waits for no source.
func (s *Sampler) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.wake:
		}
		for _, source := range s.sources {
			source.tick(ctx, n, s)
		}
		// A fault that comes and goes each second must not stay in phase with the ticks.
		if s.alert.Load() {
			timer.Reset(s.jitter(tick/2, tick))
		} else {
			timer.Reset(s.jitter(tick*3/4, tick*5/4))
		}
	}
}
