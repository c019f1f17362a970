package evidence

import (
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// memoryLimits fills in the levels that limit the cgroup's memory.
func (s *cgroupSource) memoryLimits(m node.Cgroups, v *health.Cgroup) {
	_, _, v2 := s.tree.Base(m, "memory")
	read := memoryV1
	if v2 {
		read = memoryV2
	}
	now := levels{at: v.At, dir: map[string]counters{}}
	for dir, path := range s.tree.Up(m, "memory") {
		l := health.MemoryLimit{Path: path}
		if now.dir[dir] = read(dir, &l); now.dir[dir] == nil {
			continue
		}
		s.memory.rise(now, dir, func(since counters, passed time.Duration) bool {
			l.HighEvents, l.MaxEvents, l.OOMKills = since["high"], since["max"], since["oom_kill"]
			l.Refaults = float64(since["refaults"]) / passed.Seconds()
			return false // the oldest counts
		})
		v.MemoryLimits = append(v.MemoryLimits, l)
	}
	s.memory.add(now)
}

// memoryV2 reads a level of the unified hierarchy, nil for one without a limit. The
// events are those of the limits of this level only; memory.events, which counts those
// below it too, is read where there is no memory.events.local (Linux 5.2).
func memoryV2(dir string, l *health.MemoryLimit) counters {
	l.High, l.Max = node.Limit(dir+"/memory.high"), node.Limit(dir+"/memory.max")
	if l.High == 0 && l.Max == 0 {
		return nil
	}
	l.Usage = max(0, node.Number(dir+"/memory.current"))
	k, stat := node.Counters(dir, "memory.events.local"), node.Counters(dir, "memory.stat")
	if len(k) == 0 {
		k = node.Counters(dir, "memory.events")
	}
	return counters{
		"high": k["high"], "max": k["max"], "oom_kill": k["oom_kill"],
		"refaults": stat["workingset_refault_anon"] + stat["workingset_refault_file"] + stat["workingset_refault"],
	}
}

// memoryV1 reads a level of v1's memory hierarchy, nil for one without a limit.
func memoryV1(dir string, l *health.MemoryLimit) counters {
	if l.Max = node.Limit(dir + "/memory.limit_in_bytes"); l.Max == 0 {
		return nil
	}
	l.Usage = max(0, node.Number(dir+"/memory.usage_in_bytes"))
	k, stat := node.Counters(dir, "memory.oom_control"), node.Counters(dir, "memory.stat")
	l.OOM = k["under_oom"] == 1
	const refault = "total_workingset_refault"
	return counters{
		"max": uint64(max(0, node.Number(dir+"/memory.failcnt"))), "oom_kill": k["oom_kill"], //nolint:gosec // from 0
		"refaults": stat[refault+"_anon"] + stat[refault+"_file"] + stat[refault],
	}
}

// cgroupPressure returns the pressure of the cgroup itself; nil where the kernel has
// none of a cgroup. v1 has it where a service manager uses v2's hierarchy beside
// it. That of a hierarchy's root is the whole node's.
func cgroupPressure(t node.CgroupTree, m node.Cgroups) *health.CgroupPressure {
	base, path, _ := t.Base(m, "")
	if base == "" || path == "/" {
		return nil
	}
	read := func(resource string) (some, full float64) {
		b, _ := node.ReadFile(base+path, resource+".pressure") // of nothing both are -1
		return node.ParsePressure(b)
	}
	p := &health.CgroupPressure{}
	p.CPUSome, _ = read("cpu")
	_, p.MemoryFull = read("memory")
	if p.IOSome, _ = read("io"); max(p.CPUSome, p.MemoryFull, p.IOSome) < 0 {
		return nil
	}
	return p
}
