package incident

import (
	"fmt"
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
	comm  string
	pid   int
	ticks uint64 // its start since boot; 0 if unknown
}

func (p identity) known() bool { return p.pid > 0 && p.ticks > 0 }

func (p identity) same(q identity) bool { return p.pid == q.pid && p.ticks == q.ticks }

func runtimeOf(f *health.Facts) identity {
	if p := f.Evidence.Process; p != nil && p.Alive {
		return identity{p.Comm, p.PID, p.StartTicks}
	}
	return identity{}
}

func kubeletOf(f *health.Facts) identity {
	if p := f.Evidence.KubeletProcess; p != nil {
		return identity{"the kubelet", p.PID, p.StartTicks}
	}
	return identity{}
}

// ending holds what is needed to say what changed with the end of an incident.
type ending struct {
	runtime, kubelet identity // from before the incident, or from its begin
	stopped          identity // the runtime when it was last found stopped
	stoppedAt        time.Time
	children         *health.Children // the last ones with a stuck child
	cgroup           *health.Cgroup   // the last one that was frozen or throttled
}

// begin takes the identities of the processes, unless they are known.
func (e *ending) begin(f *health.Facts) {
	if p := runtimeOf(f); !e.runtime.known() {
		e.runtime = p
	}
	if p := kubeletOf(f); !e.kubelet.known() {
		e.kubelet = p
	}
}

// observe takes the conditions of a judgement within the incident.
func (e *ending) observe(f *health.Facts) {
	e.begin(f)
	if p := f.Evidence.Process; p != nil && p.Stopped() {
		e.stopped, e.stoppedAt = runtimeOf(f), p.At
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
	recent := func(at time.Time) bool { return end.Sub(at) <= conditionAge }

	now := runtimeOf(f)
	if e.runtime.known() && now.known() && f.Evidence.Process.At.After(end) {
		switch {
		case !now.same(e.runtime):
			say("%s was restarted: pid %d before, pid %d since %s.", now.comm, e.runtime.pid, now.pid, clock(f.Evidence.Process.Start))
		case now.same(e.stopped) && recent(e.stoppedAt) && !f.Evidence.Process.Stopped():
			say("%s, pid %d, was stopped and was continued. It was not restarted.", now.comm, now.pid)
		}
	}
	if k := kubeletOf(f); e.kubelet.known() && k.known() && !k.same(e.kubelet) {
		say("The kubelet was restarted: pid %d before, pid %d since %s.", e.kubelet.pid, k.pid, clock(f.Evidence.KubeletProcess.Started))
	}
	if c := f.Evidence.Children; c != nil && c.At.After(end) && e.children != nil && recent(e.children.At) {
		for _, stuck := range e.children.Stuck {
			if !stuckIn(c, stuck.PID) {
				say("%s, pid %d, is no longer %s.", stuck.Comm, stuck.PID, condition(stuck.State))
			}
		}
	}
	if c := f.Evidence.Cgroup; c != nil && c.At.After(end) && e.cgroup != nil && recent(e.cgroup.At) && c.Path == e.cgroup.Path {
		switch {
		case e.cgroup.Frozen && !c.Frozen:
			say("The cgroup %s was frozen and was thawed.", c.Path)
		case e.cgroup.Throttled >= minThrottled && c.Throttled == 0:
			say("Its CPU quota no longer throttles the cgroup %s, which lost %.0f%% of its time.", c.Path, 100*e.cgroup.Throttled)
		}
	}
	return out
}

func stuckIn(c *health.Children, pid int) bool {
	for _, s := range c.Stuck {
		if s.PID == pid {
			return true
		}
	}
	return false
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
