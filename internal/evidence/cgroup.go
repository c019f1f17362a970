package evidence

import (
	"cmp"
	"context"
	"iter"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// The counters are compared with those of so many samples before: a limit that holds its
	// tasks up for seconds at a time counts nothing in a single one. Of samples older than
	// maxSampleAge, as in the steady state, only the last counts.
	quotaSamples  = 2
	memorySamples = 5
	maxSampleAge  = 5 * time.Second
	// minThrottledPeriods is from how many periods without accounted throttled time it is
	// missing: that of one may be accounted a moment later.
	minThrottledPeriods = 2
)

// cgroupSource reads the runtime's own cgroup, on v1, hybrid and v2.
type cgroupSource struct {
	pid         func() int
	tree        proc.CgroupTree
	samples     []levels  // the oldest first
	throttledAt time.Time // when a quota was last seen to take time
	frozenAt    time.Time
}

// levels are the counters of every level at a moment, by controller and directory.
type levels struct {
	at time.Time
	of map[string]counters
}

// counters are the counters of one level since it was made, by name.
type counters map[string]uint64

// newCgroup returns the source about the cgroup of the process that pid names, 0 for
// none. It needs no privilege. A controller that is not there leaves its numbers at 0. It is an
// error when the cgroup cannot be found: plegd then sees another cgroup namespace, or another
// /sys, than the node's.
func newCgroup(name, procfs, sysfs string, pid func() int) *Watch[facts.Cgroup] {
	c := &cgroupSource{pid: pid, tree: proc.NewCgroupTree(procfs, sysfs)}
	return NewWatch(Spec[facts.Cgroup]{
		Name: name, Every: 1, Calm: 4, Timeout: 500 * time.Millisecond,
		Gather: c.gather, Store: func(e *facts.Evidence, v *facts.Cgroup) { e.Cgroup = v },
	})
}

func (s *cgroupSource) gather(context.Context) (*facts.Cgroup, error) {
	m, err := s.tree.Of(s.pid())
	switch {
	case proc.Gone(err): // it has just ended, or is not known
		return nil, ErrNoData
	case err != nil:
		return nil, err
	}
	v := &facts.Cgroup{At: time.Now(), Path: m.Main()}
	if path, frozen := s.tree.Frozen(m); frozen {
		v.Path, v.Frozen, s.frozenAt = path, true, v.At
	}
	v.FrozenAt = s.frozenAt
	s.samples = append(s.samples[max(0, len(s.samples)-memorySamples):], levels{v.At, map[string]counters{}})
	s.throttling(m, v)
	tasks := s.tree.Fullest(m, "pids", "pids.current", "pids.max")
	v.PIDs, v.PIDsMax = int(tasks.Used), int(tasks.Limit)
	s.memoryLimits(m, v)
	v.Pressure = s.pressure(m)
	return v, nil
}

// rise yields the increase of a level's counters since each of at most n samples before, the
// oldest last; none since those of a cgroup of the same name that has ended.
func (s *cgroupSource) rise(level string, now counters, n int) iter.Seq2[counters, time.Duration] {
	last := len(s.samples) - 1
	s.samples[last].of[level] = now
	return func(yield func(since counters, passed time.Duration) bool) {
		for i := last - 1; i >= max(0, last-n); i-- {
			passed, old := s.samples[last].at.Sub(s.samples[i].at), s.samples[i].of[level]
			if old == nil || passed <= 0 || i+1 < last && passed > maxSampleAge {
				continue
			}
			since, again := counters{}, false
			for name, n := range now {
				since[name], again = n-old[name], again || n < old[name]
			}
			if !again && !yield(since, passed) {
				return
			}
		}
	}
}

// throttling fills in what the CPU quotas at the cgroup and above it take: at the level at
// which it is most, since a quota above is not counted below.
//
// The kernel accounts the time when it gives the CPU back. A group that has overdrawn a
// small quota by a tick may wait for many periods until then: while periods increase and
// the time does not, it has not run in any of them.
func (s *cgroupSource) throttling(m proc.Cgroups, v *facts.Cgroup) {
	for dir, path := range s.tree.Up(m, "cpu") {
		stat, ok := proc.ReadCPUStat(dir)
		if !ok {
			continue
		}
		v.ThrottledTotal += stat.Time
		taken := uint64(stat.Time) //nolint:gosec // not negative
		now := counters{"periods": stat.Periods, "throttled": stat.Throttled, "time": taken}
		for since, passed := range s.rise("cpu "+dir, now, quotaSamples) {
			periods := min(1, float64(since["throttled"])/max(1, float64(since["periods"])))
			// v1 counts the time of each CPU.
			share := min(1, time.Duration(since["time"]).Seconds()/passed.Seconds()) //nolint:gosec // far below 2^63
			if since["time"] == 0 && since["periods"] >= minThrottledPeriods {
				share = periods
			}
			if since["throttled"]+since["time"] > 0 {
				s.throttledAt = v.At // be the quota lifted by now
			}
			if share > v.Throttled && proc.HasQuota(dir) {
				v.Throttled = share
				v.ThrottledPeriods = periods
				v.ThrottledPath = path
			}
		}
	}
	v.ThrottledAt = s.throttledAt
}

// memoryLimits fills in the levels that limit the cgroup's memory. Before Linux 5.2 there is
// no memory.events.local, and memory.events counts the levels below, too.
func (s *cgroupSource) memoryLimits(m proc.Cgroups, v *facts.Cgroup) {
	for dir, path := range s.tree.Up(m, "memory") {
		limit := func(file string) int64 { return proc.Limit(dir + "/memory." + file) }
		l := facts.MemoryLimit{Path: path, High: limit("high"), Max: cmp.Or(limit("max"), limit("limit_in_bytes"))}
		if l.High == 0 && l.Max == 0 {
			continue
		}
		now, refault := counters(proc.Counters(dir, "memory.events.local")), "workingset_refault"
		if len(now) == 0 {
			now = proc.Counters(dir, "memory.events")
		}
		l.Usage = max(0, proc.Number(dir+"/memory.current"))
		if usage := proc.Number(dir + "/memory.usage_in_bytes"); usage >= 0 {
			v1 := proc.Counters(dir, "memory.oom_control")
			l.Usage, l.OOM, refault = usage, v1["under_oom"] == 1, "total_workingset_refault"
			now["oom_kill"] = v1["oom_kill"]
			now["max"] = uint64(max(0, proc.Number(dir+"/memory.failcnt"))) //nolint:gosec // from 0
		}
		stat := proc.Counters(dir, "memory.stat")
		now["refaults"] = stat[refault+"_anon"] + stat[refault+"_file"] + stat[refault]
		for since, passed := range s.rise("memory "+dir, now, memorySamples) { // the oldest counts
			l.HighEvents, l.MaxEvents, l.OOMKills = since["high"], since["max"], since["oom_kill"]
			l.Refaults = float64(since["refaults"]) / passed.Seconds()
		}
		v.MemoryLimits = append(v.MemoryLimits, l)
	}
}

// pressure returns the pressure of the cgroup itself; nil where the kernel has none. v1 has it
// where v2's hierarchy is mounted beside it. That of a hierarchy's root is the node's.
func (s *cgroupSource) pressure(m proc.Cgroups) *facts.CgroupPressure {
	base, path := s.tree.Base(m, "")
	if base == "" || path == "/" {
		return nil
	}
	p := &facts.CgroupPressure{}
	p.CPUSome = proc.Pressure(base+path+"/cpu.pressure", "some")
	p.MemoryFull = proc.Pressure(base+path+"/memory.pressure", "full")
	p.IOSome = proc.Pressure(base+path+"/io.pressure", "some")
	if max(p.CPUSome, p.MemoryFull, p.IOSome) < 0 {
		return nil
	}
	return p
}
