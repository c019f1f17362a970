package chain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

const (
	// starvedAfter is how long a thread must be runnable without a CPU.
	starvedAfter = time.Second
	// nearLimit is the share of a memory limit from which it holds tasks up.
	nearLimit = 0.95
)

// noCPU is the wait of a process with a thread that is runnable and gets no CPU: for
// longer, it is starved, or throttled by the topmost cgroup with a quota that took its
// time meanwhile.
func (w *Walker) noCPU(ctx context.Context, l looks) wait {
	groups, err := w.tree.Of(l.now.stat.PID)
	before := w.throttled(groups)
	if !sleep(ctx, starvedAfter) {
		return wait{state: health.LinkUnknown, evidence: "a thread is runnable", unknown: "the time for it ran out"}
	}
	later := looks{before: l.before, now: w.once(ctx, l.now.stat)}
	if later.now == nil || !slices.ContainsFunc(later.still(), func(t thread) bool { return t.state == 'R' }) {
		return wait{state: health.LinkRunning, evidence: "runs now and then"}
	}
	evidence := fmt.Sprintf("a thread has been runnable for %s without", later.passed().Round(100*time.Millisecond))
	out := wait{state: health.LinkStarved, evidence: evidence + " getting a CPU, and no quota holds it"}
	if err != nil {
		return out
	}
	base, _, _ := w.tree.Base(groups, "cpu")
	after := w.throttled(groups)
	for dir := range w.tree.Up(groups, "cpu") {
		if n := after[dir] - before[dir]; after[dir] > before[dir] && w.tree.HasQuota(dir) {
			out = cgroupWait(cgroup.LevelPath(base, dir), health.LinkThrottled, evidence+" running",
				fmt.Sprintf("its CPU quota held it up in %d periods meanwhile", n))
		}
	}
	return out
}

// throttled returns the periods in which the quota of a cgroup and of those above it
// took the CPU, by directory.
func (w *Walker) throttled(groups cgroup.Paths) map[string]uint64 {
	out := map[string]uint64{}
	for dir := range w.tree.Up(groups, "cpu") {
		if b, err := proc.ReadFile(dir, "cpu.stat"); err == nil {
			s, _ := cgroup.ParseCPUStat(b)
			out[dir] = s.Throttled
		}
	}
	return out
}

// isMemoryChannel reports whether a thread in that kernel function waits because of
// its cgroup's memory limit.
func isMemoryChannel(channel string) bool {
	return proc.In(channel, "mem_cgroup_", "__mem_cgroup_", "memory_high_", "try_charge", "obj_cgroup_charge",
		"try_to_free_mem_cgroup")
}

// memoryWait is that of a thread held by a memory limit: of the levels the one that
// is nearest to its limit.
func (w *Walker) memoryWait(p place) wait {
	evidence := fmt.Sprintf("thread %d in D in %s: the memory limit of its cgroup", p.tid, p.channel)
	out := wait{
		key: "memory", state: health.LinkMemory, evidence: evidence,
		unknown: "no level of its cgroup is near its limit",
	}
	groups, err := w.tree.Of(p.pid)
	if err != nil {
		out.unknown = "its cgroup cannot be read"
		return out
	}
	base, _, v2 := w.tree.Base(groups, "memory")
	usage, limits := "memory.usage_in_bytes", []string{"memory.limit_in_bytes"}
	if v2 {
		usage, limits = "memory.current", []string{"memory.high", "memory.max"}
	}
	share := nearLimit
	for dir := range w.tree.Up(groups, "memory") {
		used, err := w.tree.Number(dir + "/" + usage)
		for _, file := range limits {
			limit := w.tree.Limit(dir + "/" + file)
			if err != nil || limit == 0 || float64(used)/float64(limit) < share {
				continue
			}
			share = float64(used) / float64(limit)
			out = cgroupWait(cgroup.LevelPath(base, dir), health.LinkMemory, evidence,
				fmt.Sprintf("%d of %d bytes (%s)", used, limit, file))
		}
	}
	return out
}
