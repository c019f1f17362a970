package daemon

import (
	"context"
	"sync"
	"time"
)

const (
	// tick is the interval at which the daemon's parts check whether there is work to do,
	// while something may be wrong.
	tick = 250 * time.Millisecond
	// steadyInterval is the same in the steady state, where no pulse comes before it: the
	// relist that was due a second after the last one has been under way for more than a tick.
	steadyInterval = time.Second + tick + 50*time.Millisecond
	// pulseGap is the least time between two pulses in the steady state.
	pulseGap = 3 * tick
)

// pacer paces the parts of the daemon. In the steady state all of them work in one burst a
// second, after the judgement of a relist, so that the process wakes up once. While something
// may be wrong each works at every tick.
type pacer struct {
	mu    sync.Mutex
	next  chan struct{} // closed by the next pulse
	last  time.Time     // the last pulse
	alert bool
}

func newPacer() *pacer { return &pacer{next: make(chan struct{})} }

// pulse wakes all parts, unless it has just done so: relists may be much shorter apart.
func (p *pacer) pulse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.last) < pulseGap {
		return
	}
	p.wakeAll()
}

// wakeAll is called with mu held.
func (p *pacer) wakeAll() {
	close(p.next)
	p.next = make(chan struct{})
	p.last = time.Now()
}

// pulsed returns the channel that the next pulse closes.
func (p *pacer) pulsed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// setAlert sets whether something may be wrong. The first sign of it wakes all parts.
func (p *pacer) setAlert(alert bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	raised := alert && !p.alert
	p.alert = alert
	if raised {
		p.wakeAll()
	}
}

// wait returns the channel that the next pulse closes, and the longest time to wait for it.
func (p *pacer) wait() (pulsed <-chan struct{}, limit time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	limit = steadyInterval
	if p.alert {
		limit = untilTick()
	}
	return p.next, limit
}

// each calls f at each pulse and tick until ctx ends, and then returns nil.
func (p *pacer) each(ctx context.Context, f func()) error {
	for p.sleep(ctx) {
		f()
	}
	return nil
}

// sleep waits for the next pulse or tick. It reports whether ctx has not ended.
func (p *pacer) sleep(ctx context.Context) bool {
	pulsed, limit := p.wait()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-pulsed:
	case <-timer.C:
	}
	return ctx.Err() == nil
}

// sleepUntil waits until a moment, or ctx ends: in the steady state for the pulse that is nearest to it.
func (p *pacer) sleepUntil(ctx context.Context, moment time.Time) {
	for ctx.Err() == nil {
		pulsed, limit := p.wait()
		early := time.Duration(0)
		if limit == steadyInterval {
			early = steadyInterval / 2
		}
		timer := time.NewTimer(time.Until(moment) + early)
		select {
		case <-ctx.Done():
		case <-pulsed:
		case <-timer.C:
		}
		timer.Stop()
		if time.Until(moment) <= early {
			return
		}
	}
}

// untilTick is the time until the next tick. All parts have the same ones, so that the
// process wakes up once for all of them.
func untilTick() time.Duration { return tick - time.Duration(time.Now().UnixNano())%tick }
