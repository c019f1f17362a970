package daemon

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/relist"
)

const (
	// versionPeriod is the time between two Version calls while all is well.
	versionPeriod = 5 * time.Second
	// versionTick is the interval at which versionCheck checks whether a call is due.
	versionTick = 250 * time.Millisecond
	// versionAfter is how long a list, the inspections or Status are under way before
	// Version is called beside them, to tell "one call hangs" from "nothing answers".
	versionAfter = 500 * time.Millisecond
	// versionAgain is the time between two calls while something else hangs.
	versionAgain = time.Second
)

// versionCheck calls Version on the held connection as the kubelet's node status
// update does: one call at a time, with the RPC timeout. So it measures how long
// such an update waits, and it tells one list that hangs from a runtime that
// answers nothing.
type versionCheck struct {
	rt     *runtime
	loop   *relist.Loop
	status *statusCheck
	dialer *evidence.Dialer

	mu    sync.Mutex
	check health.VersionCheck // HangsSince is of calls that have ended
	since time.Time           // start of the call under way
}

// String names the task.
func (c *versionCheck) String() string { return "version" }

// Run calls until ctx ends, and then returns nil.
func (c *versionCheck) Run(ctx context.Context) error {
	tick := time.NewTicker(versionTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if c.rt.path() != "" && c.due(time.Now()) {
			c.call(ctx)
		}
	}
}

// due reports whether it is time for the next call.
func (c *versionCheck) due(now time.Time) bool {
	c.mu.Lock()
	waited, hangs := now.Sub(c.check.Ended), !c.check.HangsSince.IsZero()
	c.mu.Unlock()
	if hangs || waited >= versionPeriod {
		return true
	}
	return waited >= versionAgain && c.suspected(now)
}

// suspected reports whether another call is unanswered, or a fresh connection
// got no answer to Version.
func (c *versionCheck) suspected(now time.Time) bool {
	s := c.loop.Snapshot()
	if s.Phase != relist.Idle && now.Sub(s.PhaseStart) >= versionAfter {
		return true
	}
	if since := c.status.facts().InFlightSince; !since.IsZero() && now.Sub(since) >= versionAfter {
		return true
	}
	return c.dialer.Last().Stage == health.StageRPC
}

// call makes one call.
func (c *versionCheck) call(ctx context.Context) {
	start := time.Now()
	c.mu.Lock()
	c.since = start
	c.mu.Unlock()
	_, err := c.rt.Version(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = time.Time{}
	var e *health.CallError
	if errors.As(err, &e) && e.Code == cri.CodeDeadlineExceeded {
		c.check.HangsSince = cmp.Or(c.check.HangsSince, start)
		return
	}
	c.check = health.VersionCheck{Ended: time.Now()}
}

// facts returns how Version calls end.
func (c *versionCheck) facts() health.VersionCheck {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.check
	out.HangsSince = cmp.Or(out.HangsSince, c.since)
	return out
}
