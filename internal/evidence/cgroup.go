package evidence

import (
	"context"
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

// cgroupSource reads the runtime's own cgroup, on v1, hybrid and v2.
type cgroupSource struct {
	pid      func() int
	tree     cgroup.Tree
	throttle throttling
	memory   memoryWatch
	frozenAt time.Time
}

// NewCgroup returns the source about the cgroup of the process that pid names,
// 0 for none. It looks every 3 s, every second while something may be wrong, for at
// most 500 ms, and needs no privilege:
// /proc/PID/cgroup below procfs says where, and below fs/cgroup of sysfs are read
//
//	freezer.{state,self_freezing} (v1),
//	cgroup.{events,freeze} (v2)                    frozen, and by which level
//	cpu.stat                                       the CPU quota, at every level
//	pids.current, pids.max                         tasks
//	memory.usage_in_bytes and .limit_in_bytes (v1), memory.current and .max (v2)
//	memory.{failcnt,oom_control} (v1), memory.{high,events.local} (v2), memory.stat
//	cpu.shares (v1), cpu.weight (v2), cpu.idle     the share of the CPUs
//	{cpu,memory,io}.pressure                       where v2's hierarchy has them
//
// A controller that is not there leaves its numbers at 0. It is an error when
// the cgroup cannot be found: plegd then sees another cgroup namespace, or
// another /sys, than the node's.
func NewCgroup(procfs, sysfs string, pid func() int) *Watch[health.Cgroup] {
	c := &cgroupSource{pid: pid, tree: cgroup.NewTree(procfs, sysfs)}
	return NewWatch(Spec[health.Cgroup]{
		Name: "cgroup", Every: 1, Calm: 3, Timeout: 500 * time.Millisecond,
		Gather: c.gather, Store: func(e *health.Evidence, v *health.Cgroup) { e.Cgroup = v },
	})
}

func (s *cgroupSource) gather(context.Context) (*health.Cgroup, error) {
	pid := s.pid()
	if pid == 0 {
		return nil, ErrNoData
	}
	m, err := s.tree.Of(pid)
	if proc.Gone(err) {
		return nil, ErrNoData // it has just ended
	}
	if err != nil {
		return nil, err
	}
	if !s.tree.Shows(m) {
		return nil, fmt.Errorf("look at cgroup %s, the runtime's: it is not below %s; "+
			"plegd needs the node's /sys and its cgroup namespace", m.Main(), s.tree.Root)
	}
	v := &health.Cgroup{At: time.Now(), Path: m.Main()}
	if path, frozen := s.tree.Frozen(m); frozen {
		v.Path, v.Frozen, s.frozenAt = path, true, v.At
	}
	v.FrozenAt = s.frozenAt
	s.throttle.look(&s.tree, m, v)
	tasks, most := s.tree.Fullest(m, "pids", "pids.current", "pids.max")
	v.PIDs, v.PIDsMax = int(tasks), int(most)
	if dir, v2 := s.tree.Dir(m, "memory"); dir == "" || v2 {
		v.Memory, v.MemoryMax = s.tree.Fullest(m, "memory", "memory.current", "memory.max")
	} else {
		v.Memory, v.MemoryMax = s.tree.Fullest(m, "memory", "memory.usage_in_bytes", "memory.limit_in_bytes")
	}
	s.memory.look(&s.tree, m, v)
	v.CPUWeights = lowWeights(&s.tree, m)
	v.Pressure = cgroupPressure(&s.tree, m)
	return v, nil
}
