package incident

import (
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/health"
)

const (
	// sampleWait is how long a recovered incident waits for samples of the time after
	// its end.
	sampleWait = 5 * time.Second
	// conditionAge is the maximum age, at the end, of a condition that may have
	// ended with the incident.
	conditionAge = 10 * time.Second
	// minThrottled is the share of time lost to the CPU quota that counts.
	minThrottled = 0.2
)

// identity is a process, as distinct from a later one with the same pid.
type identity struct {
	pid   int
	ticks uint64 // its start since boot; 0 if unknown
}

func (p identity) known() bool { return p.pid > 0 && p.ticks > 0 }

// replaced reports whether q is certain to be another process than p.
func (p identity) replaced(q identity) bool { return p.known() && q.known() && p != q }

func runtimeOf(f *health.Facts) identity {
	if p := f.Evidence.Process; p != nil && p.Alive {
		return identity{p.PID, p.StartTicks}
	}
	return identity{}
}

func kubeletOf(f *health.Facts) identity {
	if p := f.Evidence.KubeletProcess; p != nil {
		return identity{p.PID, p.StartTicks}
	}
	return identity{}
}

// ending holds the state that describes the changes at the end of an incident.
type ending struct {
	runtime, kubelet identity         // from before the incident, or from its begin
	stopped          *health.Process  // the runtime when it was last found stopped
	children         *health.Children // the last ones with a stuck child
	cgroup           *health.Cgroup   // the last one that was frozen or throttled
}

// begin takes the identities of the processes, unless they are known.
func (e *ending) begin(f *health.Facts) {
	if !e.runtime.known() {
		e.runtime = runtimeOf(f)
	}
	if !e.kubelet.known() {
		e.kubelet = kubeletOf(f)
	}
}

// observe takes the conditions of a judgement within the incident.
func (e *ending) observe(f *health.Facts) {
	e.begin(f)
	if p := f.Evidence.Process; p != nil && p.Stopped() {
		e.stopped = p
	}
	if c := f.Evidence.Children; c != nil && len(c.Stuck) > 0 {
		e.children = c
	}
	if c := f.Evidence.Cgroup; c != nil && (c.Frozen || c.Throttled >= minThrottled) {
		e.cgroup = c
	}
}

// sampled reports whether the samples of f that can show the end are newer than it.
func sampled(f *health.Facts, end time.Time) bool {
	p, ch, cg := f.Evidence.Process, f.Evidence.Children, f.Evidence.Cgroup
	return (p == nil || p.At.After(end)) && (ch == nil || ch.At.After(end)) && (cg == nil || cg.At.After(end))
}

// explain returns what differs from before in samples taken after the end.
// Without such a sample it returns nothing.
func (e *ending) explain(f *health.Facts, end time.Time) []string {
	out := []string{}
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	// both reports whether a condition held until the end and was sampled again after it.
	both := func(before, after time.Time) bool { return end.Sub(before) <= conditionAge && after.After(end) }

	if p, now := f.Evidence.Process, runtimeOf(f); p != nil && p.At.After(end) {
		stopped := e.stopped
		switch {
		case e.runtime.replaced(now):
			say("%s was restarted: pid %d before, pid %d since %s.", p.Comm, e.runtime.pid, now.pid, clock(p.Start))
		case stopped != nil && both(stopped.At, p.At) && now.known() && now == e.runtime && now.pid == stopped.PID &&
			!p.Stopped():
			say("%s, pid %d, was stopped and was continued. It was not restarted.", p.Comm, now.pid)
		}
	}
	if now := kubeletOf(f); e.kubelet.replaced(now) {
		say("The kubelet was restarted: pid %d before, pid %d since %s.", e.kubelet.pid, now.pid,
			clock(f.Evidence.KubeletProcess.Started))
	}
	if was, is := e.children, f.Evidence.Children; was != nil && is != nil && both(was.At, is.At) {
		for _, c := range was.Stuck {
			if !slices.ContainsFunc(is.Stuck, func(s health.Child) bool { return s.PID == c.PID }) {
				say("%s, pid %d, is no longer %s.", c.Comm, c.PID, condition(c.State))
			}
		}
	}
	if was, is := e.cgroup, f.Evidence.Cgroup; was != nil && is != nil && both(was.At, is.At) && was.Path == is.Path {
		switch {
		case was.Frozen && !is.Frozen:
			say("The cgroup %s was frozen and was thawed.", is.Path)
		case was.Throttled >= minThrottled && is.Throttled == 0:
			say("Its CPU quota no longer throttles the cgroup %s, which lost %.0f%% of its time.", is.Path, 100*was.Throttled)
		}
	}
	return out
}

func condition(state string) string {
	switch state {
	case "T":
		return "stopped"
	case "F":
		return "frozen"
	}
	return "blocked in state " + state
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 MST") }
