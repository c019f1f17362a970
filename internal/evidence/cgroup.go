package evidence

import (
	"cmp"
	"context"
	"iter"
	"slices"
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
	// killsKept is how long a process counts that the kernel has killed for memory, and a task that it has refused.
	killsKept = time.Minute
	// minThrottledPeriods is from how many periods without accounted throttled time it is
	// missing: that of one may be accounted a moment later.
	minThrottledPeriods = 2
	// throttledLittle is the share of the time below which a quota does not count as throttling on.
	throttledLittle = 0.1
)

// cgroupSource reads the runtime's own cgroup, on v1, hybrid and v2.
type cgroupSource struct {
	pid         func() int
	tree        proc.CgroupTree
	unread      proc.Unread // by this sample
	samples     []levels    // the oldest first
	throttledAt time.Time   // when a quota was last seen to take time
	// throttledSince is as throttlingSince returns it.
	throttledSince time.Time
	frozenAt       time.Time
	refusedAt      time.Time    // when a new task was last refused
	last           proc.Cgroups // of the process while it lived
	kills          map[string]kills
}

// kills are the processes of a level that the kernel has killed for memory, within killsKept of each other.
type kills struct {
	count uint64
	at    time.Time // of the last
}

// levels are the counters of every level at one time, by controller and directory.
type levels struct {
	taken    time.Time
	counters map[string]counters
}

// counters are the counters of one level since it was made, by name.
type counters map[string]uint64

// newCgroup returns the source about the cgroup of the process that pid names, 0 for
// none. It needs no privilege. A controller that is not there leaves its numbers at 0. It is an
// error when the cgroup cannot be found: plegd then sees another cgroup namespace, or another
// /sys, than the node's.
func newCgroup(name, procfs, sysfs string, pid func() int) *Watch[facts.Cgroup] {
	c := &cgroupSource{pid: pid, unread: proc.Unread{}, kills: map[string]kills{}}
	c.tree = proc.NewCgroupTree(procfs, sysfs, proc.NewFiles(c.unread.Add))
	return NewWatch(Spec[facts.Cgroup]{
		Name:    name,
		Every:   1,
		Calm:    8,
		Timeout: 500 * time.Millisecond,
		Gather:  c.gather,
		Unread:  c.unread.Drain,
		Store:   func(e *facts.Evidence, v *facts.Cgroup) { e.Cgroup = v },
	})
}

func (s *cgroupSource) gather(context.Context) (*facts.Cgroup, error) {
	m, err := s.tree.Of(s.pid())
	switch {
	case proc.Gone(err): // it has just ended, or is not known
		return s.afterEnd()
	case err != nil:
		return nil, err
	}
	v := &facts.Cgroup{At: time.Now(), Path: m.Main()}
	if path, frozen := s.tree.Frozen(m); frozen {
		v.Path = path
		v.Frozen = true
		s.frozenAt = v.At
	}
	v.FrozenAt = s.frozenAt
	s.last = m
	s.begin(v.At)
	s.throttling(m, v)
	tasks := s.tree.Fullest(m, "pids", "pids.current", "pids.max")
	v.PIDs = int(tasks.Used)
	v.PIDsMax = int(tasks.Limit)
	v.PIDsRefused = s.tasksRefused(m)
	s.memoryLimits(m, v)
	v.Pressure = s.pressure(m)
	return v, nil
}

// afterEnd returns for which memory limits the kernel has killed processes, where the process itself has ended.
func (s *cgroupSource) afterEnd() (*facts.Cgroup, error) {
	if s.last == nil {
		return nil, ErrNoData
	}
	v := &facts.Cgroup{At: time.Now(), Path: s.last.Main()}
	s.begin(v.At)
	s.memoryLimits(s.last, v)
	v.MemoryLimits = slices.DeleteFunc(v.MemoryLimits, func(l facts.MemoryLimit) bool { return l.OOMKills == 0 })
	if len(v.MemoryLimits) == 0 {
		return nil, ErrNoData
	}
	return v, nil
}

// begin begins a sample.
func (s *cgroupSource) begin(moment time.Time) {
	kept := s.samples[max(0, len(s.samples)-memorySamples):]
	s.samples = append(kept, levels{taken: moment, counters: map[string]counters{}})
}

// record stores the counters of a level in the present sample.
func (s *cgroupSource) record(level string, c counters) {
	s.samples[len(s.samples)-1].counters[level] = c
}

// increases yields the increase of a level's counters since each of at most n samples, the
// oldest last; none since those of a cgroup of the same name that has ended.
func (s *cgroupSource) increases(level string, n int) iter.Seq2[counters, time.Duration] {
	last := len(s.samples) - 1
	newest := s.samples[last]
	return func(yield func(grown counters, passed time.Duration) bool) {
		for i := last - 1; i >= max(0, last-n); i-- {
			older := s.samples[i]
			passed := newest.taken.Sub(older.taken)
			isRecent := passed > 0 && (i+1 == last || passed <= maxSampleAge)
			grown, ok := newest.counters[level].minus(older.counters[level])
			if isRecent && ok && !yield(grown, passed) {
				return
			}
		}
	}
}

// minus returns the increase since older counters; ok is false where there are none, and where
// one began again.
func (c counters) minus(older counters) (grown counters, ok bool) {
	if older == nil {
		return nil, false
	}
	grown = counters{}
	for name, n := range c {
		if n < older[name] {
			return nil, false
		}
		grown[name] = n - older[name]
	}
	return grown, true
}

// tasksRefused reports whether the kernel has lately refused a new task for the limit of a level: those that it did not
// refuse may have ended again.
func (s *cgroupSource) tasksRefused(m proc.Cgroups) bool {
	moment := s.samples[len(s.samples)-1].taken
	for dir := range s.tree.Up(m, "pids") {
		level := "pids " + dir
		s.record(level, s.tree.Counters(dir, "pids.events"))
		for grown := range s.increases(level, 1) {
			if grown["max"] > 0 {
				s.refusedAt = moment
			}
		}
	}
	return moment.Sub(s.refusedAt) <= killsKept
}

// throttling fills in what the CPU quotas at the cgroup and above it take: at the level at
// which it is most, since a quota above is not counted below.
func (s *cgroupSource) throttling(m proc.Cgroups, v *facts.Cgroup) {
	for dir, path := range s.tree.Up(m, "cpu") {
		stat, ok := s.tree.CPUStat(dir)
		if !ok {
			continue
		}
		v.ThrottledTotal += stat.Time
		level := "cpu " + dir
		taken := uint64(stat.Time) //nolint:gosec // not negative
		s.record(level, counters{"periods": stat.Periods, "throttled": stat.Throttled, "time": taken})
		for grown, passed := range s.increases(level, quotaSamples) {
			if grown["throttled"]+grown["time"] > 0 {
				s.throttledAt = v.At // be the quota lifted by now
			}
			share, periods := throttledShare(grown, passed)
			if share > v.Throttled && s.tree.HasQuota(dir) {
				v.Throttled = share
				v.ThrottledPeriods = periods
				v.ThrottledPath = path
			}
		}
	}
	v.ThrottledAt = s.throttledAt
	v.ThrottledSince = s.throttlingSince(v)
}

// throttlingSince returns since when a quota has taken throttledLittle in each sample, zero for not now.
func (s *cgroupSource) throttlingSince(v *facts.Cgroup) time.Time {
	if v.Throttled < throttledLittle {
		s.throttledSince = time.Time{}
	} else {
		s.throttledSince = cmp.Or(s.throttledSince, v.At)
	}
	return s.throttledSince
}

// throttledShare returns the share of the time and of the periods in which a quota held its tasks
// up.
//
// The kernel accounts the time when it gives the CPU back. A group that has overdrawn a
// small quota by a tick may wait for many periods until then: while periods increase and
// the time does not, it has not run in any of them.
func throttledShare(grown counters, passed time.Duration) (share, periods float64) {
	periods = min(1, float64(grown["throttled"])/max(1, float64(grown["periods"])))
	if grown["time"] == 0 && grown["periods"] >= minThrottledPeriods {
		return periods, periods
	}
	// v1 counts the time of each CPU.
	taken := time.Duration(grown["time"]) //nolint:gosec // far below 2^63
	return min(1, taken.Seconds()/passed.Seconds()), periods
}

// memoryLimits fills in the levels that limit the cgroup's memory. The kernel counts a process that it kills at its own
// level, be the limit one above.
func (s *cgroupSource) memoryLimits(m proc.Cgroups, v *facts.Cgroup) {
	var below kills
	for dir, path := range s.tree.Up(m, "memory") {
		limit := func(file string) int64 { return s.tree.Limit(dir, "memory."+file) }
		l := facts.MemoryLimit{Path: path, High: limit("high"), Max: cmp.Or(limit("max"), limit("limit_in_bytes"))}
		level := "memory " + dir
		if l.High == 0 && l.Max == 0 {
			s.record(level, counters{"oom_kill": oomKills(s.tree.Files, dir)})
			below = below.plus(s.killsAt(level))
			continue
		}
		s.record(level, readMemory(s.tree.Files, dir, &l))
		for grown, passed := range s.increases(level, memorySamples) { // the oldest counts
			l.HighEvents = grown["high"]
			l.MaxEvents = grown["max"]
			l.Refaults = float64(grown["refaults"]) / passed.Seconds()
		}
		killed := below.plus(s.killsAt(level))
		below = kills{}
		l.OOMKills = killed.count
		l.OOMKilledAt = killed.at
		v.MemoryLimits = append(v.MemoryLimits, l)
	}
}

// killsAt returns the kills at a level with those since the last sample.
func (s *cgroupSource) killsAt(level string) kills {
	moment := s.samples[len(s.samples)-1].taken
	all := s.kills[level]
	for grown := range s.increases(level, 1) {
		if grown["oom_kill"] > 0 {
			all = all.plus(kills{count: grown["oom_kill"], at: moment})
		}
	}
	if moment.Sub(all.at) > killsKept {
		all = kills{}
	}
	s.kills[level] = all
	return all
}

func (k kills) plus(l kills) kills {
	return kills{count: k.count + l.count, at: facts.Later(k.at, l.at)}
}

// oomKills returns how many processes of a level the kernel has killed for memory.
func oomKills(files proc.Files, dir string) uint64 {
	c := files.Counters(dir, "memory.events.local")
	if len(c) == 0 { // v1
		c = files.Counters(dir, "memory.oom_control")
	}
	return c["oom_kill"]
}

// readMemory fills in the usage of a level, and returns its counters.
func readMemory(files proc.Files, dir string, l *facts.MemoryLimit) counters {
	usage := files.Number(dir, "memory.usage_in_bytes")
	if usage >= 0 {
		return readMemoryV1(files, dir, usage, l)
	}
	l.Usage = max(0, files.Number(dir, "memory.current"))
	c := counters(files.Counters(dir, "memory.events.local"))
	if len(c) == 0 { // before Linux 5.2; it counts the levels below, too
		c = files.Counters(dir, "memory.events")
	}
	stat := files.Counters(dir, "memory.stat")
	const refault = "workingset_refault"
	c["refaults"] = stat[refault] + stat[refault+"_anon"] + stat[refault+"_file"]
	return c
}

func readMemoryV1(files proc.Files, dir string, usage int64, l *facts.MemoryLimit) counters {
	control := files.Counters(dir, "memory.oom_control")
	l.Usage = usage
	l.OOM = control["under_oom"] == 1
	stat := files.Counters(dir, "memory.stat")
	const refault = "total_workingset_refault"
	return counters{
		"oom_kill": control["oom_kill"],
		"max":      uint64(max(0, files.Number(dir, "memory.failcnt"))), //nolint:gosec // from 0
		"refaults": stat[refault] + stat[refault+"_anon"] + stat[refault+"_file"],
	}
}

// pressure returns the pressure of the cgroup itself; nil where the kernel has none. v1 has it
// where v2's hierarchy is mounted beside it. That of a hierarchy's root is the node's.
func (s *cgroupSource) pressure(m proc.Cgroups) *facts.CgroupPressure {
	base, path := s.tree.Base(m, "")
	if base == "" || path == "/" {
		return nil
	}
	p := &facts.CgroupPressure{
		CPUSome:    s.tree.Pressure("some", base+path, "cpu.pressure"),
		MemoryFull: s.tree.Pressure("full", base+path, "memory.pressure"),
		IOSome:     s.tree.Pressure("some", base+path, "io.pressure"),
	}
	if max(p.CPUSome, p.MemoryFull, p.IOSome) < 0 {
		return nil
	}
	return p
}
