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
	// starvedAfter is how long a thread must be runnable without a CPU: a bit more than the
	// longest period of a quota.
	starvedAfter = 1100 * time.Millisecond
	// nearLimit is the share of a memory limit from which it holds tasks up.
	nearLimit = 0.95
)

// noCPU is the wait of a process whose cgroup has a CPU quota that takes the CPU from it
// most of the time, or else with a thread that is runnable and gets none. ok is false for
// any other process.
func (w *Walker) noCPU(ctx context.Context, l looks) (out wait, ok bool) {
	groups, err := w.tree.Of(l.now.stat.PID)
	before := w.quotas(groups)
	runnable := slices.ContainsFunc(l.still(), func(t thread) bool { return t.state == 'R' })
	if err != nil || len(before) == 0 && !runnable {
		return wait{}, false
	}
	if !sleep(ctx, starvedAfter) {
		return wait{state: health.LinkUnknown, evidence: "a thread is runnable", unknown: "the time for it ran out"}, true
	}
	after := w.quotas(groups)
	for dir, path := range w.tree.Up(groups, "cpu") { // the topmost comes last
		periods, took := after[dir].Periods-before[dir].Periods, after[dir].Throttled-before[dir].Throttled
		if took > 0 && 2*took >= periods {
			out, ok = cgroupWait(path, health.LinkThrottled, "its CPU quota holds it up",
				fmt.Sprintf("the quota took the CPU away in %d of %d periods", took, periods)), true
		}
	}
	if ok || !runnable {
		return out, ok
	}
	later := looks{before: l.before, now: w.once(ctx, l.now.stat)}
	if later.now == nil || !slices.ContainsFunc(later.still(), func(t thread) bool { return t.state == 'R' }) {
		return wait{state: health.LinkRunning, evidence: "runs now and then"}, true
	}
	passed := later.passed().Round(100 * time.Millisecond)
	return wait{state: health.LinkStarved, evidence: fmt.Sprintf(
		"a thread has been runnable for %s without getting a CPU, and no quota holds it", passed)}, true
}

// quotas returns what the CPU quotas of a cgroup and of those above it did, by directory.
func (w *Walker) quotas(groups cgroup.Paths) map[string]cgroup.CPUStat {
	out := map[string]cgroup.CPUStat{}
	for dir := range w.tree.Up(groups, "cpu") {
		if b, err := proc.ReadFile(dir, "cpu.stat"); err == nil && w.tree.HasQuota(dir) {
			out[dir], _ = cgroup.ParseCPUStat(b)
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
	for _, files := range [][]string{
		{"memory.usage_in_bytes", "memory.limit_in_bytes"}, {"memory.current", "memory.high", "memory.max"},
	} {
		u := w.tree.Fullest(groups, "memory", files[0], files[1:]...)
		if u.Limit > 0 && float64(u.Used)/float64(u.Limit) >= nearLimit {
			out = cgroupWait(u.Path, health.LinkMemory, evidence, fmt.Sprintf("%d of %d bytes (%s)", u.Used, u.Limit, u.File))
		}
	}
	return out
}
