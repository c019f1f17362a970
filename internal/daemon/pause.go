package daemon

import (
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

const (
	// pausedAfter is the time between two ticks of the judge from which plegd, or the
	// machine, was paused.
	pausedAfter = 3 * time.Second
	// wakeTimeout is the maximum time for which the verdict is held after a pause.
	wakeTimeout = 3 * time.Second
)

// pauses detects that plegd was paused: a stopped process, a stopped virtual machine
// or a suspended node. After a pause the verdict is held until plegd has called the
// runtime again: the ages of a moment ago say nothing about it.
type pauses struct {
	tick time.Time // the last one
	woke time.Time // the end of the last pause
	held bool
}

// note takes a tick of the judge.
func (p *pauses) note(now time.Time) {
	if !p.tick.IsZero() && now.Sub(p.tick) >= pausedAfter {
		p.woke, p.held = now, true
	}
	p.tick = now
}

// judged returns v, or the verdict before it while that is held.
func (p *pauses) judged(now time.Time, f *health.Facts, v, previous *health.Verdict) *health.Verdict {
	p.held = p.held && previous != nil && now.Sub(p.woke) < wakeTimeout && !p.called(f)
	if p.held {
		return previous
	}
	return v
}

// called reports whether the runtime has been called since the pause. Calls that were
// under way in the pause do not count: their deadlines passed in it.
func (p *pauses) called(f *health.Facts) bool {
	relist := f.Relist.Last != nil && f.Relist.Last.Start.After(p.woke)
	status := f.Status.LastGood.After(p.woke) ||
		f.Status.LastErr != nil && f.Calls[cri.OpStatus].LastFailed.After(p.woke)
	probe := f.Probe.FailedSince.IsZero() || f.Probe.At.After(p.woke)
	return relist && status && probe
}
