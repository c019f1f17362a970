package evidence

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// noLimit is from where a limit of v1 means none: for memory the kernel writes
// the largest number of pages, in bytes.
const noLimit = 1 << 60

// cgroupSource reads the runtime's own cgroup, on v1, hybrid and v2.
type cgroupSource struct {
	pid      func() int
	tree     cgroupTree
	throttle throttling
	memory   memoryWatch
}

// NewCgroup returns the source about the cgroup of the process that pid names,
// 0 for none. It looks every second, for at most 500 ms, and needs no privilege:
// /proc/PID/cgroup below procfs says where, and below fs/cgroup of sysfs are read
//
//	freezer.state (v1), cgroup.events (v2)         frozen, itself or from above
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
	c := &cgroupSource{pid: pid, tree: newCgroupTree(procfs, sysfs)}
	return NewWatch("cgroup", Timing{Period: time.Second, Timeout: 500 * time.Millisecond}, c.gather)
}

func (s *cgroupSource) gather(context.Context) (*health.Cgroup, error) {
	pid := s.pid()
	if pid == 0 {
		return nil, ErrNoData
	}
	m, err := s.tree.of(pid)
	if gone(err) {
		return nil, ErrNoData // it has just ended
	}
	if err != nil {
		return nil, err
	}
	if !s.tree.shows(m) {
		return nil, fmt.Errorf("look at cgroup %s, the runtime's: it is not below %s; plegd needs the node's /sys and its cgroup namespace", m.path(), s.tree.root)
	}
	v := &health.Cgroup{At: time.Now(), Path: m.path()}
	if path, frozen := s.tree.frozen(m); frozen {
		v.Path, v.Frozen = path, true
	}
	s.throttle.look(&s.tree, m, v)
	tasks, most := s.tree.fullest(m, "pids", "pids.current", "pids.max")
	v.PIDs, v.PIDsMax = int(tasks), int(most)
	if dir, v2 := s.tree.dir(m, "memory"); dir == "" || v2 {
		v.Memory, v.MemoryMax = s.tree.fullest(m, "memory", "memory.current", "memory.max")
	} else {
		v.Memory, v.MemoryMax = s.tree.fullest(m, "memory", "memory.usage_in_bytes", "memory.limit_in_bytes")
	}
	s.memory.look(&s.tree, m, v)
	v.CPUWeights = s.tree.weights(m)
	v.Pressure = s.tree.pressure(m)
	return v, nil
}

// fullest returns what is used of a limit, and the limit: of those at a cgroup
// and above it the one that will be met first. Where there is none, what the
// cgroup uses and 0.
func (t *cgroupTree) fullest(m cgroups, controller, current, limit string) (used, most int64) {
	own, first := int64(0), true
	for dir := range t.up(m, controller) {
		n, err := t.number(dir + "/" + current)
		if err != nil {
			continue // the root of a hierarchy counts nothing
		}
		if first {
			own, first = n, false
		}
		l, err := t.number(dir + "/" + limit)
		if err != nil || l >= noLimit || l <= 0 {
			continue // "max" is no number
		}
		if most == 0 || float64(n)*float64(most) > float64(used)*float64(l) {
			used, most = n, l
		}
	}
	if most == 0 {
		return own, 0
	}
	return used, most
}

// number reads a file with one number in it.
func (t *cgroupTree) number(path string) (int64, error) {
	b, err := t.reader.read(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err == nil && n < 0 {
		return 0, strconv.ErrRange
	}
	return n, err
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
