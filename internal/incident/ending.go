package incident

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/health"
)

const (
	// conditionAge is the maximum age, at the end, of a condition that may have
	// ended with the incident.
	conditionAge = 10 * time.Second
	// minThrottled is the share of time lost to the CPU quota that counts.
	minThrottled = 0.2
)

// past is what the evidence showed before the end of an incident.
type past struct {
	runtime  *health.Process // of before the incident, or of its begin
	kubelet  *health.KubeletProcess
	stopped  *health.Process  // the runtime, if it was stopped until the end
	children *health.Children // with a stuck child until the end
	cgroup   *health.Cgroup   // frozen or throttled until the end
}

// recall returns what the moments of an incident that recovered at end show, and the
// snapshot before it.
func recall(before *health.Snapshot, timeline []Moment, end time.Time) (was past) {
	moments := slices.Insert(slices.Clone(timeline), 0, Moment{Snapshot: before})
	for i, m := range moments {
		e := &m.Snapshot.Facts.Evidence
		if p := e.Process; was.runtime == nil && p != nil && p.Alive && p.StartTicks > 0 {
			was.runtime = p
		}
		if p := e.KubeletProcess; was.kubelet == nil && p != nil && p.StartTicks > 0 {
			was.kubelet = p
		}
		if i+1 < len(moments) && end.Sub(moments[i+1].Snapshot.At) > conditionAge || !m.Snapshot.At.Before(end) {
			continue
		}
		if p := e.Process; p != nil && p.Stopped() {
			was.stopped = p
		}
		if c := e.Children; c != nil && len(c.Stuck) > 0 {
			was.children = c
		}
		if c := e.Cgroup; c != nil && (c.Frozen || c.Throttled >= minThrottled) {
			was.cgroup = c
		}
	}
	return was
}

// sampled reports whether the samples that can show the end are newer than it.
func sampled(e *health.Evidence, end time.Time) bool {
	p, ch, cg := e.Process, e.Children, e.Cgroup
	return (p == nil || p.At.After(end)) && (ch == nil || ch.At.After(end)) && (cg == nil || cg.At.After(end))
}

// explain returns what differs in samples taken after the end. Without such a sample it
// returns nothing. Only the start in ticks since boot tells a process from a later one
// with the same pid.
func (was *past) explain(now *health.Evidence, end time.Time) []string {
	out := []string{}
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if old, p := was.runtime, now.Process; old != nil && p != nil && p.Alive && p.StartTicks > 0 && p.At.After(end) {
		switch {
		case p.PID != old.PID || p.StartTicks != old.StartTicks:
			say("%s was restarted: pid %d before, pid %d since %s.", p.Comm, old.PID, p.PID, clock(p.Start))
		case was.stopped != nil && was.stopped.PID == p.PID && !p.Stopped():
			say("%s, pid %d, was stopped and was continued. It was not restarted.", p.Comm, p.PID)
		}
	}
	if old, p := was.kubelet, now.KubeletProcess; old != nil && p != nil && p.StartTicks > 0 &&
		(p.PID != old.PID || p.StartTicks != old.StartTicks) {
		say("The kubelet was restarted: pid %d before, pid %d since %s.", old.PID, p.PID, clock(p.Started))
	}
	if old, is := was.children, now.Children; old != nil && is != nil && is.At.After(end) {
		for _, c := range old.Stuck {
			if !slices.ContainsFunc(is.Stuck, func(s health.Child) bool { return s.PID == c.PID }) {
				words := map[string]string{"T": "stopped", "F": "frozen"}
				say("%s, pid %d, is no longer %s.", c.Comm, c.PID, cmp.Or(words[c.State], "blocked in state "+c.State))
			}
		}
	}
	if old, is := was.cgroup, now.Cgroup; old != nil && is != nil && old.Path == is.Path && is.At.After(end) {
		switch {
		case old.Frozen && !is.Frozen:
			say("The cgroup %s was frozen and was thawed.", is.Path)
		case old.Throttled >= minThrottled && is.Throttled == 0:
			say("Its CPU quota no longer throttles the cgroup %s, which lost %.0f%% of its time.", is.Path, 100*old.Throttled)
		}
	}
	return out
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 MST") }
