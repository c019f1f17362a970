package daemon

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/relist"
)

const (
	// checkTick is the interval at which the checks below look whether they are due.
	checkTick = 250 * time.Millisecond
	// betweenStatus is the time between two Status calls while Status is not good.
	betweenStatus = time.Second
	// versionPeriod is the time between two Version calls while all is well.
	versionPeriod = 5 * time.Second
	// versionAfter is how long a list, the inspections or Status are under way before
	// Version is called beside them, to tell "one call hangs" from "nothing answers".
	versionAfter = 500 * time.Millisecond
	// versionAgain is the time between two calls while something else hangs.
	versionAgain = time.Second
)

// every calls f at each tick until ctx ends, and then returns nil.
func every(ctx context.Context, interval time.Duration, f func()) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			f()
		}
	}
}

// statusCheck makes the kubelet's runtime status check: Status about every 5 s, the
// next a period after the last one ended, one at a time, with the RPC timeout
// (pkg/kubelet/kubelet.go, updateRuntimeUp).
//
// While a condition is false, or the last call failed, it asks every second in between,
// to detect the recovery at once. These calls do not shift the kubelet's: they end when
// the next of those is due, and count only if every condition is true. So they change
// only one thing: such a node counts as Ready when the quickest kubelet would report
// it, up to 5 s before the slowest; the phase of the node's own kubelet is unknown.
type statusCheck struct {
	rt     *runtime
	failed func() // is called after a call of the kubelet's that failed
	state  atomic.Pointer[health.Status]
	// due is when the kubelet's own clock asks next, next when this check does. Only the
	// goroutine of Run uses them.
	due, next time.Time
}

func newStatusCheck(rt *runtime, restored health.Status, failed func()) *statusCheck {
	s := &statusCheck{rt: rt, failed: failed}
	s.state.Store(&restored)
	return s
}

// Run asks until ctx ends, and then returns nil.
func (s *statusCheck) Run(ctx context.Context) error {
	s.turn(ctx)
	return every(ctx, checkTick, func() { s.turn(ctx) })
}

// turn asks if a call is due.
func (s *statusCheck) turn(ctx context.Context) {
	now := time.Now()
	switch {
	case s.rt.path() == "" || now.Before(s.next):
		return
	case now.Before(s.due):
		s.askBetween(ctx)
	default:
		s.ask(ctx, now)
		s.due = time.Now().Add(s.rt.cfg.jittered(health.StatusPeriod))
	}
	s.next = s.due
	if last := s.state.Load(); last.LastErr != nil || last.Answered && !good(last.RuntimeReady, last.NetworkReady) {
		s.next = time.Now().Add(min(time.Until(s.due), s.rt.cfg.jittered(betweenStatus)))
	}
}

func good(runtimeReady, networkReady *health.Condition) bool {
	return runtimeReady.Good() && networkReady.Good()
}

// ask makes one of the kubelet's calls. After an error the conditions stay as they were;
// only the 30 s run on.
func (s *statusCheck) ask(ctx context.Context, start time.Time) {
	next := *s.state.Load()
	calling := next
	calling.InFlightSince = start
	s.state.Store(&calling)
	answer, err := s.rt.Status(ctx)
	switch {
	case err == nil:
		s.answered(&answer)
		return
	case ctx.Err() == nil:
		next.LastErr = nil
		_ = errors.As(err, &next.LastErr)
		defer s.failed()
	}
	s.state.Store(&next)
}

// askBetween makes one call between two of the kubelet's.
func (s *statusCheck) askBetween(ctx context.Context) {
	limited, cancel := context.WithDeadline(ctx, s.due)
	defer cancel()
	answer, err := s.rt.Status(limited)
	if err == nil && good(answer.RuntimeReady, answer.NetworkReady) {
		s.answered(&answer)
	}
}

func (s *statusCheck) answered(a *cri.Status) {
	next := health.Status{
		Answered: true, LastGood: s.state.Load().LastGood,
		RuntimeReady: a.RuntimeReady, NetworkReady: a.NetworkReady,
	}
	if next.RuntimeReady.Good() {
		next.LastGood = time.Now()
	}
	s.state.Store(&next)
}

// versionCheck calls Version on the held connection as the kubelet's node status
// update does: one call at a time, with the RPC timeout. So it measures how long
// such an update waits, and it tells one list that hangs from a runtime that
// answers nothing.
type versionCheck struct {
	rt     *runtime
	loop   *relist.Loop
	status *statusCheck
	dialer *evidence.Dialer
	state  atomic.Pointer[health.VersionCheck]
}

// Run calls until ctx ends, and then returns nil.
func (c *versionCheck) Run(ctx context.Context) error {
	return every(ctx, checkTick, func() {
		if c.rt.path() != "" && c.due(time.Now()) {
			c.call(ctx)
		}
	})
}

// due reports whether it is time for the next call.
func (c *versionCheck) due(now time.Time) bool {
	last := c.facts()
	waited := now.Sub(last.Ended)
	return !last.HangsSince.IsZero() || waited >= versionPeriod || waited >= versionAgain && c.suspected(now)
}

// suspected reports whether another call is unanswered, or a fresh connection
// got no answer to Version.
func (c *versionCheck) suspected(now time.Time) bool {
	s := c.loop.Snapshot()
	if s.Phase != relist.Idle && now.Sub(s.PhaseStart) >= versionAfter {
		return true
	}
	if since := c.status.state.Load().InFlightSince; !since.IsZero() && now.Sub(since) >= versionAfter {
		return true
	}
	return c.dialer.Last().Stage == health.StageRPC
}

// call makes one call. HangsSince stays while calls run into their deadlines.
func (c *versionCheck) call(ctx context.Context) {
	calling := c.facts()
	calling.HangsSince = cmp.Or(calling.HangsSince, time.Now())
	c.state.Store(&calling)
	_, err := c.rt.Version(ctx)
	var e *health.CallError
	if !errors.As(err, &e) || e.Code != cri.CodeDeadlineExceeded {
		c.state.Store(&health.VersionCheck{Ended: time.Now()})
	}
}

// facts returns how Version calls end. HangsSince is also of the call under way.
func (c *versionCheck) facts() health.VersionCheck {
	if state := c.state.Load(); state != nil {
		return *state
	}
	return health.VersionCheck{}
}
