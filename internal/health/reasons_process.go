package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// throttledShare is the time a second that a quota must take away, and
	// slowCall what a list must take, for a quota to count as the cause.
	throttledShare = 0.3
	throttledStill = 0.1 // of the time or of the periods, where it has been throttled before
	slowCall       = 300 * time.Millisecond
	// throttledLists is how many relists' lists must be quick for a quota that
	// still throttles to count as the cause no longer.
	throttledLists = 10
	// quotaMeasured is how long after a list began to hang it is known whether the
	// quota takes enough time to be the cause.
	quotaMeasured = 2500 * time.Millisecond
	// restartsWithin, restartsMany and restartsOver: so many starts in that
	// time are a loop, until none has come for that long.
	restartsWithin = 5 * time.Minute
	restartsMany   = 3
	restartsOver   = time.Minute
	// stopsMany stops within stopsWithin are one fault, however quick the answers
	// in between; it ends stopsOver after the last moment of one.
	stopsMany   = 2
	stopsWithin = 10 * time.Second
	stopsOver   = 1250 * time.Millisecond
)

// processReasons speak of the process behind the socket.
var processReasons = []Reason{
	{
		ID: RuntimeFrozen, hops: true, Layer: LayerProcess, Severity: SeverityCritical,
		match: func(w *view) []string {
			p, c := w.f.Evidence.Process, w.f.Evidence.Cgroup
			if p == nil || !p.Alive {
				return nil
			}
			n := threads(p)
			if c != nil && c.Frozen && w.unansweredSince(c.At) {
				return []string{fmt.Sprintf("the cgroup of pid %d is frozen: %s", p.PID, c.Path)}
			}
			if n > 0 && p.Threads["T"] == n && w.unansweredSince(p.At) {
				return []string{fmt.Sprintf("pid %d (%s): all %d threads are stopped", p.PID, p.Comm, n)}
			}
			if w.stoppedAgain(p) {
				return []string{fmt.Sprintf("pid %d (%s): all threads are stopped and continued, again and again", p.PID, p.Comm)}
			}
			return nil
		},
		next: (*view).frozenNext,
	},
	{
		ID: RuntimeThrottled, hops: true, Layer: LayerProcess, Severity: SeverityCritical,
		match: func(w *view) []string {
			c := w.f.Evidence.Cgroup
			// The kernel adds up the time only when it lets the process run again.
			slow := w.listsSuffer() || w.listsSlowLately(RuntimeThrottled)
			if c == nil || !w.quotaTakes(c) || !slow {
				return nil
			}
			out := []string{fmt.Sprintf("throttled for %.2gs a second, in %.0f %% of its periods", c.Throttled,
				100*c.ThrottledPeriods)}
			if l := w.f.Relist.Lists; len(l) > 0 {
				out = append(out, "the lists of the last relist took "+Seconds(l[len(l)-1]))
			}
			return out
		},
	},
}

// frozenNext says how to let the runtime run again.
func (w *view) frozenNext() string {
	p, c := w.f.Evidence.Process, w.f.Evidence.Cgroup
	if p == nil {
		return ""
	}
	traced := func(l Link) bool { return l.PID == p.PID && l.State == LinkTraced }
	if chain := w.chain(); chain.Culprit() != nil && slices.ContainsFunc(chain.Links, traced) {
		return firstStep(chain, chain.Culprit()) // SIGCONT does nothing
	}
	if c == nil || !c.Frozen {
		return fmt.Sprintf("Find out what stopped %s (`grep -e State -e TracerPid /proc/%d/status`), and continue it: "+
			"`kill -CONT %d`.", p.name(), p.PID, p.PID)
	}
	thaw := fmt.Sprintf("`echo 0 >/sys/fs/cgroup%s/cgroup.freeze` "+
		"(v1: `echo THAWED >/sys/fs/cgroup/freezer%s/freezer.state`)", c.Path, c.Path)
	if unit := c.Path[strings.LastIndexByte(c.Path, '/')+1:]; p.Unit != "" &&
		(unit == p.Unit || unit == p.Unit+".service") {
		thaw = fmt.Sprintf("`systemctl thaw %s`", p.Unit) // of a cgroup above it, systemd thaws nothing
	}
	return fmt.Sprintf("Find out what froze the cgroup of %s (%s), and thaw it: %s.", p.name(), c.Path, thaw)
}

// unansweredSince reports whether nothing has been answered since t, and a call
// is unanswered now: one is under way, or the last one failed for want of an
// answer.
func (w *view) unansweredSince(t time.Time) bool {
	if w.lastAnswer.After(t) {
		return false
	}
	if w.hop != nil {
		return w.f.Probe.waitsForSettings()
	}
	if w.err != nil && !w.err.answered() {
		return true
	}
	under := func(since time.Time) bool { return !since.IsZero() && w.age(since) >= slowCall }
	if in := w.f.Relist.InFlight; in != nil && under(in.PhaseStart) {
		return true
	}
	return under(w.f.Calls[opVersion].InFlightSince) || under(w.f.Status.InFlightSince)
}

// stoppedAgain reports whether the process is stopped again and again, and runs in
// between: its answers are late or not, as they fall.
func (w *view) stoppedAgain(p *Process) bool {
	if p.StoppedAt.IsZero() || w.age(p.StoppedAt) >= stopsOver {
		return false
	}
	n := len(p.Stops)
	return n >= stopsMany && w.age(p.Stops[n-stopsMany]) <= stopsWithin
}

// quotaTakes reports whether the CPU quota takes enough time; once it has, whether
// it still takes some. A quota that is lifted takes none at once.
func (w *view) quotaTakes(c *Cgroup) bool {
	share := w.band(RuntimeThrottled, throttledShare, throttledStill)
	if share != throttledStill {
		return c.Throttled >= share
	}
	// The last list was slow in a time in which the quota still took some.
	last := w.f.Relist.Last
	slow := w.lists == listsSlow && last != nil && c.ThrottledAt.After(last.Start)
	return c.Throttled >= share || c.ThrottledPeriods >= share || slow
}

// quotaUnmeasured reports whether the CPU quota has taken time since a list began to
// hang, and how much of the time is not known yet: that takes another look or two.
func (w *view) quotaUnmeasured() bool {
	c := w.f.Evidence.Cgroup
	return c != nil && !w.hungSince.IsZero() && c.ThrottledAt.After(w.hungSince) && w.age(w.hungSince) < quotaMeasured
}

// listsSlowLately reports whether one of the last few relists' lists was slow: under a
// quota a list that meets a fresh period is quick. A reason that stands looks further back.
func (w *view) listsSlowLately(id string) bool {
	lists, n := w.f.Relist.Lists, int(w.band(id, recentLists, throttledLists))
	return slices.ContainsFunc(lists[max(0, len(lists)-n):], func(d time.Duration) bool { return d >= slowCall })
}
