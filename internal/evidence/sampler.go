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
	alert   atomic.Bool
	wake    chan struct{}
	jitter  func(least, most time.Duration) time.Duration
}

func newSampler(sources ...Source) *Sampler {
	return &Sampler{sources: sources, wake: make(chan struct{}, 1), jitter: jitter}
}

func jitter(least, most time.Duration) time.Duration {
	return least + rand.N(most-least) //nolint:gosec // no secret
}

// String names the task.
func (s *Sampler) String() string { return "evidence" }

// Alert sets whether something may be wrong. From then on each source is sampled
// every Every ticks, and no longer every Calm.
func (s *Sampler) Alert(on bool) {
	if s.alert.Swap(on) || !on {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
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
			source.tick(ctx, n, s.alert.Load())
		}
		// A fault that comes and goes each second must not stay in phase with the ticks.
		if s.alert.Load() {
			timer.Reset(s.jitter(tick/2, tick))
		} else {
			timer.Reset(s.jitter(tick*3/4, tick*5/4))
		}
	}
}
