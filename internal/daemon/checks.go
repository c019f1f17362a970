package daemon

import (
	"cmp"
	"context"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/kubelet"
)

const (
	// betweenStatus is the time between two Status calls while Status is not good.
	betweenStatus = time.Second
	// versionPeriod is the least time between two Version calls in the steady state; the next
	// pulse makes the call, up to a second later: about as often as the kubelet does for its node status
	// (nodeStatusUpdateFrequency, 10 s). A Version that hangs alone shows sooner on a fresh connection, and is then called.
	versionPeriod = 9 * time.Second
	// versionAlert is the same while something may be wrong.
	versionAlert = 4 * time.Second
	// versionAfter is how long a list, the inspections or Status are under way before
	// Version is called beside them, to tell "one call hangs" from "nothing answers".
	versionAfter = 500 * time.Millisecond
	// versionAgain is the time between two calls while something else hangs.
	versionAgain = time.Second
)

// checkStatus makes the kubelet's runtime status check: Status about every 5 s, the
// next a period after the last one ended, one at a time, with the RPC timeout
// (pkg/kubelet/kubelet.go, updateRuntimeUp). It returns nil when ctx ends.
//
// While a condition is false, or the last call failed, it asks every second in between:
// a recovery counts from when the quickest kubelet sees it, up to 5 s before the slowest.
// These calls do not shift the others: they end when the next is due, and count only if
// every condition is true. In the steady state the call is made at the pulse that is nearest to when it is
// due, so that it stays in no phase with the kubelet's.
func (d *Daemon) checkStatus(ctx context.Context) error {
	var due, next time.Time // of the kubelet's own clock, and of this check
	for ctx.Err() == nil {
		if d.path() == "" {
			d.pace.sleep(ctx)
			continue
		}
		if d.statusIsBad() && time.Now().Before(due) {
			d.askStatusBetween(ctx, due)
		} else {
			d.askStatus(ctx)
			due = time.Now().Add(kubelet.StatusPeriod)
		}
		next = due
		if d.statusIsBad() {
			next = time.Now().Add(min(time.Until(due), d.cfg.jittered(betweenStatus)))
		}
		d.pace.sleepUntil(ctx, next)
	}
	return nil
}

// askStatusBetween makes a call between two of the kubelet's, until the next of these is due.
func (d *Daemon) askStatusBetween(ctx context.Context, due time.Time) {
	limited, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	answer, err := d.client.Status(limited)
	if err == nil && answer.ConditionsGood() {
		d.statusAnswered(answer)
	}
}

// statusIsBad reports whether the last call failed, or a condition of the last answer is false.
func (d *Daemon) statusIsBad() bool {
	s := d.status.Load()
	return s.LastErr != nil || s.Answered && !s.ConditionsGood()
}

// askStatus makes one of the kubelet's calls. After an error the conditions stay as they
// were; only the 30 s run on.
func (d *Daemon) askStatus(ctx context.Context) {
	next := *d.status.Load()
	calling := next
	calling.InFlightSince = time.Now()
	d.status.Store(&calling)
	answer, err := d.client.Status(ctx)
	if err == nil {
		d.statusAnswered(answer)
		return
	}
	if ctx.Err() == nil {
		next.LastErr = cri.AsError(err)
		defer d.news.Send()
	}
	d.status.Store(&next)
}

func (d *Daemon) statusAnswered(s facts.Status) {
	s.LastGood = d.status.Load().LastGood
	if s.RuntimeReady.Good() {
		s.LastGood = time.Now()
	}
	d.status.Store(&s)
}

// checkVersion calls Version on the held connection as the kubelet's node status update
// does, one call at a time, with the RPC timeout. It measures how long such an update
// waits, and tells one list that hangs from a runtime that answers nothing. HangsSince
// stays while calls run into their deadlines. It returns nil when ctx ends.
func (d *Daemon) checkVersion(ctx context.Context) error {
	return d.pace.each(ctx, func() {
		t := time.Now()
		last := *d.version.Load()
		if d.path() == "" || !d.versionIsDue(last, t) {
			return
		}
		last.HangsSince = cmp.Or(last.HangsSince, t)
		d.version.Store(&last)
		v, err := d.client.Version(ctx)
		if err == nil {
			d.runtime.Store(&v)
		}
		d.askPlugin(ctx, cri.AsError(err))
		if e := cri.AsError(err); e == nil || e.Code != cri.CodeDeadlineExceeded {
			d.version.Store(&facts.VersionCheck{Ended: time.Now()})
		}
	})
}

// versionIsDue reports whether Version is called again.
func (d *Daemon) versionIsDue(last facts.VersionCheck, t time.Time) bool {
	waited := t.Sub(last.Ended)
	period := versionPeriod
	if d.sources.IsAlert() {
		period = versionAlert
	}
	return !last.HangsSince.IsZero() || waited >= period || waited >= versionAgain && d.suspected(t)
}

// suspected reports whether another call than Version is unanswered, or a fresh connection
// got no answer to Version.
func (d *Daemon) suspected(t time.Time) bool {
	listed := d.loop.Snapshot().Relist.PhaseStart
	asked := d.status.Load().InFlightSince
	return facts.Unanswered(listed, t, versionAfter) || facts.Unanswered(asked, t, versionAfter) ||
		d.dialer.Last().Stage == facts.StageRPC
}
