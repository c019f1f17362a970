package evidence

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// tick is the longest time between two ticks. Each is up to a quarter shorter: samples
// at a fixed period could be in phase with a fault that comes and goes.
const tick = time.Second

// Sampler samples the sources, each when it is due, until it is stopped.
type Sampler struct {
	sources []Source
	alert   atomic.Bool
	wake    chan struct{}
	jitter  func(time.Duration) time.Duration
}

func newSampler(sources ...Source) *Sampler {
	return &Sampler{sources: sources, wake: make(chan struct{}, 1), jitter: jitter}
}

func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Float64()*float64(d/4)) //nolint:gosec // no secret
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
		next := s.jitter(tick)
		if s.alert.Load() { // a mean of about 0.77 s drifts through a fault that comes and goes each second
			next = s.jitter(next)
		}
		timer.Reset(next)
	}
}
