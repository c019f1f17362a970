package daemon

import (
	"slices"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/beat"
	"github.com/plegd/plegd/internal/health"
)

const (
	// alarmingCall is how long a call must be unanswered to raise attention.
	alarmingCall = 250 * time.Millisecond
	// alarmingList is what both lists must have taken, and alarmingTimes how many
	// times what they usually take.
	alarmingList  = 300 * time.Millisecond
	alarmingTimes = 3
	// alarmingFDs is the share of the descriptors in use.
	alarmingFDs = 0.9
	// attentionFor is how long attention lasts after there was last a cause for it.
	attentionFor = 5 * time.Second
)

// attention is raised while something may be wrong. What is dear is then looked at
// often, and otherwise rarely. The judge alone sets it.
type attention struct {
	until time.Time // the judge's

	mu     sync.Mutex
	on     bool
	raised chan struct{} // closed while it is raised
}

func newAttention() *attention { return &attention{raised: make(chan struct{})} }

// set raises or lowers it, and reports whether that is a change.
func (a *attention) set(on bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.on == on {
		return false
	}
	if a.on = on; on {
		close(a.raised)
	} else {
		a.raised = make(chan struct{})
	}
	return true
}

// wait returns how long to wait until the next look, and a channel that ends that
// wait: usual while all is well, soon while attention is raised.
func (a *attention) wait(soon, usual time.Duration) (time.Duration, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.on {
		return soon, nil
	}
	return usual, a.raised
}

// calm reports whether all is well.
func (a *attention) calm() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.on
}

// probePace is how long the fresh dial waits: half as long again while all is well.
func (a *attention) probePace(period time.Duration) time.Duration {
	wait, _ := a.wait(period, beat.After(period+period/2))
	return wait
}

// attend raises attention where a judgement gives cause for it.
func (j *judge) attend(s *health.Snapshot, now time.Time) {
	if alarming(&s.Facts, &s.Verdict, now) || j.paused.waking() {
		j.attention.until = now.Add(attentionFor)
	}
	if on := now.Before(j.attention.until); j.attention.set(on) {
		j.d.sources.Alert(on)
		if on {
			j.d.dialer.Kick()
		}
	}
}

// alarming reports whether something may be wrong: a call is slow, fails or hangs,
// a queue is not empty, or a limit is near.
func alarming(f *health.Facts, v *health.Verdict, now time.Time) bool {
	unanswered := func(since time.Time) bool { return !since.IsZero() && now.Sub(since) >= alarmingCall }
	r, e := &f.Relist, &f.Evidence
	switch {
	case v.CloserLook(), r.Failures > 0, r.Reinspect > 0, slowLists(r):
		return true
	case r.InFlight != nil && unanswered(r.InFlight.PhaseStart), unanswered(f.Status.InFlightSince), unanswered(f.Version.HangsSince), f.Status.LastErr != nil:
		return true
	case !f.Probe.At.IsZero() && !f.Probe.OK, e.Docker != nil && !e.Docker.OK:
		return true
	}
	if q := e.Queue; q != nil && (q.Length > 0 || !q.Listening || now.Sub(q.ListeningSince) < attentionFor) {
		return true
	}
	if p := e.Process; p != nil && (!p.Alive || p.Stopped() || len(p.Blocked) > 0 || p.MaxFDs > 0 && float64(p.OpenFDs) >= alarmingFDs*float64(p.MaxFDs)) {
		return true
	}
	return e.Children != nil && len(e.Children.Stuck) > 0
}

// slowLists reports whether the last lists took much longer than lists usually do.
func slowLists(r *health.Relist) bool {
	n := len(r.Lists)
	if n == 0 || r.Lists[n-1] < alarmingList {
		return false
	}
	return r.Lists[n-1] >= alarmingTimes*slices.Sorted(slices.Values(r.Lists))[n/2]
}
