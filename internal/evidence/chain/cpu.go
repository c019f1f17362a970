package chain

import (
	"context"
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

const (
	// quotaWindow is the time over which a quota is read: more than its longest period.
	quotaWindow = 1100 * time.Millisecond
	// nearLimit is the share of a memory limit from which it holds tasks up.
	nearLimit = 0.95
)

// throttled is the wait of a process whose cgroup has a CPU quota that takes the CPU from
// it most of the time; ok is false for any other process.
func (w *Walker) throttled(ctx context.Context, pid int) (out wait, ok bool) {
	groups, err := w.tree.Of(pid)
	before := w.quotas(groups)
	if err != nil || len(before) == 0 || !sleep(ctx, quotaWindow) {
		return wait{}, false
	}
	after := w.quotas(groups)
	for dir, path := range w.tree.Up(groups, "cpu") { // the topmost comes last
		periods, took := after[dir].Periods-before[dir].Periods, after[dir].Throttled-before[dir].Throttled
		if took > 0 && 2*took >= periods {
			out, ok = cgroupWait(path, health.LinkThrottled, "its CPU quota holds it up",
				fmt.Sprintf("the quota took the CPU away in %d of %d periods", took, periods)), true
		}
	}
	return out, ok
}

// quotas returns what the CPU quotas of a cgroup and of those above it did, by directory.
func (w *Walker) quotas(groups node.Cgroups) map[string]node.CPUStat {
	out := map[string]node.CPUStat{}
	for dir := range w.tree.Up(groups, "cpu") {
		if s, ok := node.ReadCPUStat(dir); ok && node.HasQuota(dir) {
			out[dir] = s
		}
	}
	return out
}

// isMemoryChannel reports whether a thread in that kernel function waits because of
// its cgroup's memory limit.
func isMemoryChannel(channel string) bool {
	return node.In(channel, "mem_cgroup_", "__mem_cgroup_", "memory_high_", "try_charge", "obj_cgroup_charge",
		"try_to_free_mem_cgroup")
}

// memoryWait is that of a thread held by a memory limit: of the levels the one that
// is nearest to its limit.
func (w *Walker) memoryWait(p place) wait {
	evidence := fmt.Sprintf("thread %d in D in %s: the memory limit of its cgroup", p.tid, p.channel)
	groups, err := w.tree.Of(p.pid)
	if err != nil {
		return wait{key: "memory", state: health.LinkMemory, evidence: evidence, unknown: "its cgroup cannot be read"}
	}
	for _, files := range [][]string{
		{"memory.usage_in_bytes", "memory.limit_in_bytes"}, {"memory.current", "memory.high", "memory.max"},
	} {
		u := w.tree.Fullest(groups, "memory", files[0], files[1:]...)
		if u.Limit > 0 && float64(u.Used)/float64(u.Limit) >= nearLimit {
			return cgroupWait(u.Path, health.LinkMemory, evidence, fmt.Sprintf("%d of %d bytes (%s)", u.Used, u.Limit, u.File))
		}
	}
	unknown := "no level of its cgroup is near its limit"
	return wait{key: "memory", state: health.LinkMemory, evidence: evidence, unknown: unknown}
}

// cgroupWait is that of a process that its cgroup holds up.
func cgroupWait(path string, state health.LinkState, evidence, how string) wait {
	link := health.Link{Kind: health.KindCgroup, Name: path, State: state, Evidence: how}
	return wait{key: "cgroup " + path, state: state, evidence: evidence, link: link}
}
