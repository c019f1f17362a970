package evidence

import (
	"context"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// cgroupSource reads the runtime's own cgroup, on v1, hybrid and v2.
type cgroupSource struct {
	pid         func() int
	tree        node.CgroupTree
	cpu, memory window
	throttledAt time.Time // when a quota was last seen to take time
	frozenAt    time.Time
}

// newCgroup returns the source about the cgroup of the process that pid names, 0 for
// none. It needs no privilege: /proc/PID/cgroup below procfs says where, and below
// fs/cgroup of sysfs are read
//
//	freezer.{state,self_freezing} (v1),
//	cgroup.{events,freeze} (v2)                    frozen, and by which level
//	cpu.stat                                       the CPU quota, at every level
//	pids.current, pids.max                         tasks
//	memory.usage_in_bytes and .limit_in_bytes (v1), memory.current and .max (v2)
//	memory.{failcnt,oom_control} (v1), memory.{high,events.local} (v2), memory.stat
//	{cpu,memory,io}.pressure                       where v2's hierarchy has them
//
// A controller that is not there leaves its numbers at 0. It is an error when
// the cgroup cannot be found: plegd then sees another cgroup namespace, or
// another /sys, than the node's.
func newCgroup(name, procfs, sysfs string, pid func() int) *Watch[health.Cgroup] {
	c := &cgroupSource{
		pid: pid, tree: node.NewCgroupTree(procfs, sysfs),
		cpu: window{keep: 2, maxAge: 2500 * time.Millisecond}, memory: window{keep: 5, maxAge: 5 * time.Second},
	}
	return NewWatch(Spec[health.Cgroup]{
		Name: name, Every: 1, Calm: 3, Timeout: 500 * time.Millisecond,
		Gather: c.gather, Store: func(e *health.Evidence, v *health.Cgroup) { e.Cgroup = v },
	})
}

func (s *cgroupSource) gather(context.Context) (*health.Cgroup, error) {
	pid := s.pid()
	if pid == 0 {
		return nil, ErrNoData
	}
	m, err := s.tree.Of(pid)
	if node.Gone(err) {
		return nil, ErrNoData // it has just ended
	}
	if err != nil {
		return nil, err
	}
	v := &health.Cgroup{At: time.Now(), Path: m.Main()}
	if path, frozen := s.tree.Frozen(m); frozen {
		v.Path, v.Frozen, s.frozenAt = path, true, v.At
	}
	v.FrozenAt = s.frozenAt
	s.throttling(m, v)
	tasks := s.tree.Fullest(m, "pids", "pids.current", "pids.max")
	v.PIDs, v.PIDsMax = int(tasks.Used), int(tasks.Limit)
	s.memoryLimits(m, v)
	v.Pressure = cgroupPressure(s.tree, m)
	return v, nil
}

// counters are the counters of one level since it was made, by name.
type counters map[string]uint64

// levels are the counters of every level, by directory, at a moment.
type levels struct {
	at  time.Time
	dir map[string]counters
}

// window holds the last samples, the oldest first: a limit that holds its tasks up for
// seconds at a time counts nothing in a single one.
type window struct {
	keep int
	// maxAge is the age from which a sample is not compared with where there is a
	// younger one: samples are far apart in the steady state, and an older one would
	// average a new fault with the time before it.
	maxAge time.Duration
	before []levels
}

// rise calls f with the increase of a level's counters since each of the samples that it
// can be compared with: not those of a cgroup of the same name that has ended.
func (w *window) rise(now levels, dir string, f func(since counters, passed time.Duration) bool) {
	for i, sample := range w.before {
		passed, old := now.at.Sub(sample.at), sample.dir[dir]
		if old == nil || passed <= 0 || i+1 < len(w.before) && passed > w.maxAge {
			continue
		}
		since, again := counters{}, false
		for name, n := range now.dir[dir] {
			since[name], again = n-old[name], again || n < old[name]
		}
		if !again && !f(since, passed) {
			return
		}
	}
}

func (w *window) add(now levels) {
	w.before = append(w.before, now)
	w.before = w.before[max(0, len(w.before)-w.keep):]
}

// minThrottledPeriods is the number of periods in one sample, without any accounted
// throttled time, that shows throttling: that of one may be accounted a moment later.
const minThrottledPeriods = 2

// throttling fills in what the CPU quotas at the cgroup and above it take: that of the
// level at which it is hardest, since a quota above is not counted below. ThrottledTotal
// is of all levels.
func (s *cgroupSource) throttling(m node.Cgroups, v *health.Cgroup) {
	now := levels{at: v.At, dir: map[string]counters{}}
	for dir := range s.tree.Up(m, "cpu") {
		stat, ok := node.ReadCPUStat(dir)
		if !ok {
			continue
		}
		v.ThrottledTotal += stat.Time
		taken := uint64(stat.Time) //nolint:gosec // not negative
		now.dir[dir] = counters{"periods": stat.Periods, "throttled": stat.Throttled, "time": taken}
		share, periods := s.takenShare(now, dir)
		if share > v.Throttled && node.HasQuota(dir) {
			v.Throttled, v.ThrottledPeriods = share, periods
		}
	}
	if v.Throttled > 0 || s.lastThrottled(now) {
		s.throttledAt = v.At
	}
	v.ThrottledAt = s.throttledAt
	s.cpu.add(now)
}

// takenShare returns the share of the time that a level's quota took lately, and the
// share of periods in which it took some.
//
// The kernel accounts the time when it gives the CPU back. A group that has overdrawn a
// small quota by a tick may wait for many periods until then: while periods increase and
// the time does not, it has not run in any of them.
func (s *cgroupSource) takenShare(now levels, dir string) (taken, periods float64) {
	s.cpu.rise(now, dir, func(since counters, passed time.Duration) bool {
		share := min(1, float64(since["throttled"])/max(1, float64(since["periods"])))
		// v1 counts the time of each CPU.
		part := min(1, time.Duration(since["time"]).Seconds()/passed.Seconds()) //nolint:gosec // far below 2^63
		if since["time"] == 0 && since["periods"] >= minThrottledPeriods {
			part = share
		}
		if part > taken {
			taken, periods = part, share
		}
		return true
	})
	return taken, periods
}

// lastThrottled reports whether a quota has taken time since the last sample, be it
// lifted by now.
func (s *cgroupSource) lastThrottled(now levels) bool {
	if n := len(s.cpu.before); n > 0 {
		for dir, old := range s.cpu.before[n-1].dir {
			if c := now.dir[dir]; c["throttled"] > old["throttled"] || c["time"] > old["time"] {
				return true
			}
		}
	}
	return false
}
